import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Produces and consumes with the version of kafka-clients on the class path, from 1.0 to 4.x.
 *
 * Arguments: BOOTSTRAP TOPIC CLIENT_ID COUNT BYTES PARTITIONS. Record i is CLIENT_ID:i, padded with x, in partition i mod PARTITIONS.
 * Prints one line: acknowledged, failed, longest throttle of a Produce and of a Fetch in ms, consumed, SHA-256 of each partition's values.
 */
public final class VersionedClient {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[3]);
        int bytes = Integer.parseInt(arguments[4]);
        int partitions = Integer.parseInt(arguments[5]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("client.id", arguments[2]);
        StringBuilder line = new StringBuilder();
        produce(properties, topic, arguments[2], count, bytes, partitions, line);
        consume(properties, topic, count, partitions, line);
        System.out.println(line);
        System.out.flush();
    }

    private static void produce(Properties base, String topic, String name, int count, int bytes, int partitions, StringBuilder line) {
        Properties properties = new Properties();
        properties.putAll(base);
        properties.put("acks", "all");
        properties.put("enable.idempotence", "true");
        properties.put("max.in.flight.requests.per.connection", "5");
        properties.put("retries", String.valueOf(Integer.MAX_VALUE));
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        AtomicInteger acknowledged = new AtomicInteger();
        AtomicInteger failed = new AtomicInteger();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, i % partitions, null, value(name, i, bytes)), (where, error) -> {
                    (error == null ? acknowledged : failed).incrementAndGet();
                });
            }
            producer.flush();
            line.append(acknowledged).append(' ').append(failed).append(' ');
            line.append(longest(producer.metrics(), "produce-throttle-time-max")).append(' ');
        }
    }

    private static void consume(Properties base, String topic, int count, int partitions, StringBuilder line) throws Exception {
        Properties properties = new Properties();
        properties.putAll(base);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        MessageDigest[] digests = new MessageDigest[partitions];
        List<TopicPartition> assigned = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            digests[partition] = MessageDigest.getInstance("SHA-256");
            assigned.add(new TopicPartition(topic, partition));
        }
        int consumed = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties)) {
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            long end = System.nanoTime() + 90_000_000_000L;
            while (consumed < count && System.nanoTime() < end) {
                for (ConsumerRecord<byte[], byte[]> record : poll(consumer)) {
                    digests[record.partition()].update(record.value());
                    consumed++;
                }
            }
            line.append(longest(consumer.metrics(), "fetch-throttle-time-max")).append(' ').append(consumed);
        }
        for (MessageDigest digest : digests) {
            line.append(' ');
            for (byte one : digest.digest()) {
                line.append(String.format("%02x", one));
            }
        }
    }

    /** poll(Duration) exists since 2.0, and it is the only form since 4.0. */
    @SuppressWarnings("unchecked")
    private static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        for (Method method : KafkaConsumer.class.getMethods()) {
            if (method.getName().equals("poll") && method.getParameterTypes()[0] == Duration.class) {
                return (ConsumerRecords<byte[], byte[]>) method.invoke(consumer, Duration.ofMillis(500));
            }
        }
        return (ConsumerRecords<byte[], byte[]>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 500L);
    }

    private static byte[] value(String name, int number, int bytes) {
        byte[] value = new byte[bytes];
        Arrays.fill(value, (byte) 'x');
        byte[] head = (name + ":" + number).getBytes(StandardCharsets.US_ASCII);
        System.arraycopy(head, 0, value, 0, head.length);
        return value;
    }

    private static double longest(Map<MetricName, ? extends Metric> metrics, String name) {
        double found = 0;
        for (Map.Entry<MetricName, ? extends Metric> metric : metrics.entrySet()) {
            Object value = metric.getKey().name().equals(name) ? metric.getValue().metricValue() : null;
            if (value instanceof Double && !((Double) value).isNaN()) {
                found = Math.max(found, (Double) value);
            }
        }
        return found;
    }
}
