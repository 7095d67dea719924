import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.common.metrics.Quota;

/**
 * Reports the produce quota groups of a broker with their bounds: JMX shows the rate, but not the bound.
 *
 * A metrics reporter of the broker. A client that connects to the port in the broker setting `quota.bounds.port` gets one line per
 * existing group: user, client-id, bound and rate, separated by tabs.
 */
public final class QuotaBounds implements MetricsReporter {
    private static final Map<MetricName, KafkaMetric> METRICS = new ConcurrentHashMap<>();
    private static ServerSocket server; // shared by broker and controller, which each create a reporter

    @Override
    public void configure(Map<String, ?> configs) {
        Object port = configs.get("quota.bounds.port");
        if (port != null) {
            listen(Integer.parseInt(port.toString()));
        }
    }

    private static synchronized void listen(int port) {
        if (server != null) {
            return;
        }
        try {
            server = new ServerSocket(port, 5, InetAddress.getLoopbackAddress());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        Thread thread = new Thread(QuotaBounds::serve, "quota-bounds");
        thread.setDaemon(true);
        thread.start();
    }

    private static void serve() {
        while (true) {
            try (Socket client = server.accept();
                    PrintStream out = new PrintStream(client.getOutputStream(), false, StandardCharsets.UTF_8)) {
                METRICS.forEach((name, metric) -> print(out, name, metric));
            } catch (IOException error) {
                System.err.println("quota-bounds: " + error);
            }
        }
    }

    private static void print(PrintStream out, MetricName name, KafkaMetric metric) {
        Quota quota = metric.config().quota();
        Map<String, String> tags = name.tags();
        out.println(tags.get("user") + "\t" + tags.get("client-id") + "\t" + (quota == null ? "" : quota.bound()) + "\t" + metric.metricValue());
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
        metrics.forEach(this::metricChange);
    }

    @Override
    public void metricChange(KafkaMetric metric) {
        MetricName name = metric.metricName();
        if (name.group().equals("Produce") && name.name().equals("byte-rate")) {
            METRICS.put(name, metric);
        }
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
        METRICS.remove(metric.metricName());
    }

    @Override
    public void close() {
        // the JVM ends with its broker
    }
}
