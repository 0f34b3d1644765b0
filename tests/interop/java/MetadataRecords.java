import java.io.*;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.image.*;
import org.apache.kafka.image.writer.*;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.*;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * JVM Kafka's view of metadata records, for tests. Files hold values, each after an int32 length.
 *   types                       every record type: number, class name, lowest and highest version
 *   levels                      every metadata.version: number, name, versions of written records
 *   configs                     every topic config: name, type, default, synonyms
 *   roundtrip IN OUT            decode and encode each value
 *   replay IN OUT LEVEL         replay all values, write the image's records at a metadata.version
 */
public class MetadataRecords {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "types" -> types();
            case "levels" -> levels();
            case "configs" -> configs();
            case "roundtrip" -> write(args[2], read(args[1]));
            case "replay" -> write(args[2], replay(read(args[1]), Short.parseShort(args[3])));
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static void types() {
        for (MetadataRecordType type : MetadataRecordType.values()) {
            String name = type.newMetadataRecord().getClass().getSimpleName();
            System.out.println(type.id() + " " + name + " " + type.lowestSupportedVersion()
                + " " + type.highestSupportedVersion());
        }
    }

    static void levels() {
        for (MetadataVersion v : MetadataVersion.values()) {
            System.out.println(v.featureLevel() + " " + v + " " + v.registerBrokerRecordVersion()
                + " " + v.partitionRecordVersion() + " " + v.partitionChangeRecordVersion());
        }
    }

    static void configs() {
        for (ConfigDef.ConfigKey key : LogConfig.configDefCopy().configKeys().values()) {
            if (key.internalConfig) continue;
            StringJoiner names = new StringJoiner(",");
            var synonyms = ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.get(key.name);
            if (synonyms != null) synonyms.forEach(s -> names.add(s.name()));
            String value = ConfigDef.convertToString(key.defaultValue, key.type);
            System.out.println(key.name + "|" + key.type + "|" + value + "|" + names);
        }
    }

    static List<ApiMessageAndVersion> read(String path) throws IOException {
        List<ApiMessageAndVersion> found = new ArrayList<>();
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(path)))) {
            while (in.available() > 0) {
                byte[] value = new byte[in.readInt()];
                in.readFully(value);
                ByteBuffer buffer = ByteBuffer.wrap(value);
                found.add(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(buffer), value.length));
            }
        }
        return found;
    }

    static void write(String path, List<ApiMessageAndVersion> messages) throws IOException {
        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(path)))) {
            for (ApiMessageAndVersion message : messages) {
                ObjectSerializationCache cache = new ObjectSerializationCache();
                int size = MetadataRecordSerde.INSTANCE.recordSize(message, cache);
                ByteBuffer buffer = ByteBuffer.allocate(size);
                MetadataRecordSerde.INSTANCE.write(message, cache, new ByteBufferAccessor(buffer));
                out.writeInt(size);
                out.write(buffer.array(), 0, size);
            }
        }
    }

    static List<ApiMessageAndVersion> replay(List<ApiMessageAndVersion> messages, short level) {
        MetadataDelta delta = new MetadataDelta(MetadataImage.EMPTY);
        for (ApiMessageAndVersion message : messages) delta.replay(message.message());
        MetadataImage image = delta.apply(new MetadataProvenance(messages.size(), 1, 1, true));
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(MetadataVersion.fromFeatureLevel(level))
            .setEligibleLeaderReplicasEnabled(true)
            .build());
        return writer.records();
    }
}
