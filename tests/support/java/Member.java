import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a consumer group that reports its assignments, until its thread is interrupted.
 *
 * Arguments: BOOTSTRAP TOPIC KEY=VALUE..., the latter settings of the consumer. Prints the partitions it owns:
 * "assigned PARTITION,..." when some are assigned and "left PARTITION,..." when some are revoked. About once a second it prints
 * "read RECORDS", the number so far, and "heartbeat MS", the slowest heartbeat of the last half minute.
 */
public final class Member {
    private static final long STATUS_NANOS = 1_000_000_000L;

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        for (int i = 2; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        try {
            consumer.subscribe(List.of(arguments[1]), new Listener());
            long read = 0;
            for (long due = System.nanoTime(); ; ) {
                read += consumer.poll(Duration.ofMillis(200)).count();
                if (System.nanoTime() - due >= 0) {
                    due = System.nanoTime() + STATUS_NANOS;
                    say("read " + read);
                    say("heartbeat " + slowestHeartbeat(consumer));
                }
            }
        } catch (InterruptException end) {
            Thread.interrupted();  // a thread that is still interrupted could not close what it has
        } finally {
            consumer.close(Duration.ZERO);  // a throttled member would wait for the answer to its last request
        }
    }

    private static long slowestHeartbeat(KafkaConsumer<byte[], byte[]> consumer) {
        return consumer.metrics().values().stream()
            .filter(metric -> metric.metricName().name().equals("heartbeat-response-time-max"))
            .map(Metric::metricValue)
            .mapToLong(value -> value instanceof Double number && !number.isNaN() ? Math.round(number) : 0)
            .max().orElse(0);
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static final class Listener implements ConsumerRebalanceListener {
        private final Set<Integer> owned = new TreeSet<>();

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(partition -> owned.add(partition.partition()));
            say("assigned " + listed());
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(partition -> owned.remove(partition.partition()));
            say("left " + listed());
        }

        private String listed() {
            return owned.stream().map(String::valueOf).collect(Collectors.joining(","));
        }
    }
}
