import java.io.IOException;
import javax.management.JMException;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Prints the request time that brokers charge: every `request-time` of the request quota.
 *
 * Arguments: the JMX port of each broker on 127.0.0.1. Prints lines "PORT MILLISECONDS CLIENT_ID VALUE" where MILLISECONDS is
 * the wall clock at the time of reading; clients without a client-id are left out.
 */
public final class RequestTimes {
    public static void main(String[] ports) throws IOException, JMException {
        StringBuilder lines = new StringBuilder();
        for (String port : ports) {
            JMXServiceURL url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://127.0.0.1:" + port + "/jmxrmi");
            try (JMXConnector connector = JMXConnectorFactory.connect(url)) {
                MBeanServerConnection beans = connector.getMBeanServerConnection();
                for (ObjectName name : beans.queryNames(new ObjectName("kafka.server:type=Request,*"), null)) {
                    append(lines, port, beans, name);
                }
            }
        }
        System.out.print(lines);
        System.out.flush();
    }

    private static void append(StringBuilder lines, String port, MBeanServerConnection beans, ObjectName name)
            throws IOException, JMException {
        String clientId = name.getKeyProperty("client-id");
        if (clientId == null) {
            return;
        }
        Object value = beans.getAttribute(name, "request-time");
        lines.append(port).append(' ').append(System.currentTimeMillis()).append(' ').append(clientId).append(' ').append(value).append('\n');
    }
}
