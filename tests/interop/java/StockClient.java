import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes numbered records with the producer's default settings, reads them back by assign(). */
public final class StockClient {
    private static final Duration LIMIT = Duration.ofSeconds(120);

    /** Arguments: bootstrap servers, topic, number of partitions, number of records. */
    public static void main(String[] args) throws Exception {
        int partitions = Integer.parseInt(args[2]);
        int count = Integer.parseInt(args[3]);
        write(args[0], args[1], partitions, count);
        read(args[0], args[1], partitions, count);
        System.out.println("wrote and read " + count);
    }

    private static String value(int i) {
        return "record " + i + " of a numbered row, padded a little";
    }

    private static void write(String servers, String topic, int partitions, int count) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", servers), new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>(count);
            for (int i = 0; i < count; i++) {
                sent.add(producer.send(new ProducerRecord<>(topic, i % partitions, null, value(i))));
            }
            producer.flush();
            for (int i = 0; i < count; i++) {
                RecordMetadata place = sent.get(i).get();
                check(place.offset() == i / partitions, "record " + i + " went to " + place);
            }
        }
    }

    private static void read(String servers, String topic, int partitions, int count) {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "enable.auto.commit", false);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                settings, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> places = new ArrayList<>();
            for (int p = 0; p < partitions; p++) {
                places.add(new TopicPartition(topic, p));
            }
            consumer.assign(places);
            consumer.seekToBeginning(places);
            int[] next = new int[partitions];
            long deadline = System.nanoTime() + LIMIT.toNanos();
            for (int seen = 0; seen < count; ) {
                check(System.nanoTime() < deadline, "only " + seen + " of " + count + " came");
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    int p = record.partition();
                    check(record.offset() == next[p], p + "@" + record.offset() + ", not " + next[p]);
                    int i = next[p]++ * partitions + p;
                    check(record.value().equals(value(i)), record.value() + ", not record " + i);
                    seen++;
                }
            }
        }
    }

    private static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }
}
