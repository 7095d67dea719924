import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Consume, transform, produce: copies a topic with its offsets in transactions, and aborts and repeats every fifth.
 *
 * Arguments: BOOTSTRAP FROM TO RECORDS RECORDS_PER_TRANSACTION. Prints "copied N, aborted M".
 */
public final class CopyInTransactions {
    public static void main(String[] arguments) {
        int wanted = Integer.parseInt(arguments[3]);
        int perTransaction = Integer.parseInt(arguments[4]);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consumerSettings(arguments, perTransaction));
             KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producerSettings(arguments))) {
            producer.initTransactions();
            consumer.subscribe(List.of(arguments[1]));
            int copied = 0;
            int aborted = 0;
            for (int attempt = 1; copied < wanted; attempt++) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(1));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    producer.send(new ProducerRecord<>(arguments[2], record.partition(), record.key(), record.value()));
                }
                producer.sendOffsetsToTransaction(ends(records), consumer.groupMetadata());
                if (attempt % 5 == 0) {
                    producer.flush();
                    producer.abortTransaction();
                    rewind(consumer, records);
                    aborted++;
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
            }
            System.out.println("copied " + copied + ", aborted " + aborted);
        }
    }

    private static Map<TopicPartition, OffsetAndMetadata> ends(ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            ends.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        return ends;
    }

    private static void rewind(KafkaConsumer<byte[], byte[]> consumer, ConsumerRecords<byte[], byte[]> records) {
        for (TopicPartition partition : records.partitions()) {
            consumer.seek(partition, records.records(partition).get(0).offset());
        }
    }

    private static Properties consumerSettings(String[] arguments, int perTransaction) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("client.id", "copier");
        settings.put("group.id", "copy-of-" + arguments[1]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", Integer.toString(perTransaction));
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return settings;
    }

    private static Properties producerSettings(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("client.id", "copier");
        settings.put("transactional.id", "copy-to-" + arguments[2]);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        return settings;
    }
}
