import java.io.IOException;
import javax.management.AttributeNotFoundException;
import javax.management.JMException;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Prints in one line how many connections brokers closed because a request came after the SASL session had expired (KIP-368).
 *
 * Arguments: the JMX port of each broker on 127.0.0.1.
 */
public final class ExpiredSessions {
    public static void main(String[] ports) throws IOException, JMException {
        double killed = 0;
        for (String port : ports) {
            JMXServiceURL url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://127.0.0.1:" + port + "/jmxrmi");
            try (JMXConnector connector = JMXConnectorFactory.connect(url)) {
                MBeanServerConnection beans = connector.getMBeanServerConnection();
                for (ObjectName name : beans.queryNames(new ObjectName("kafka.server:type=socket-server-metrics,*"), null)) {
                    killed += count(beans, name);
                }
            }
        }
        System.out.println((long) killed);
        System.out.flush();
    }

    private static double count(MBeanServerConnection beans, ObjectName name) throws IOException, JMException {
        try {
            return ((Number) beans.getAttribute(name, "expired-connections-killed-count")).doubleValue();
        } catch (AttributeNotFoundException other) { // what is said of a listener as a whole
            return 0;
        }
    }
}
