import java.util.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.image.*;
import org.apache.kafka.image.writer.*;
import org.apache.kafka.server.common.*;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * JVM Kafka's image and configs, for tests; files are those of MetadataRecords.
 *   configs                     every topic config: name, type, default, synonyms
 *   nodeconfigs                 every broker config: name, type, default
 *   replay IN OUT LEVEL         replay all values, write the image's records at a metadata.version
 */
public class MetadataReplay {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "configs" -> configs();
            case "nodeconfigs" -> nodeConfigs();
            case "replay" -> MetadataRecords.write(args[2],
                replay(MetadataRecords.read(args[1]), Short.parseShort(args[3])));
            default -> throw new IllegalArgumentException(args[0]);
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

    static void nodeConfigs() {
        for (ConfigDef.ConfigKey key : AbstractKafkaConfig.CONFIG_DEF.configKeys().values()) {
            String value = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "required";
            System.out.println(key.name + "|" + key.type + "|" + value);
        }
    }

    static List<ApiMessageAndVersion> replay(List<ApiMessageAndVersion> messages, short level) {
        MetadataImage image = MetadataImage.EMPTY;
        long offset = 0;
        for (ApiMessageAndVersion message : messages) {
            // One delta a record: ClearElrRecord fails on a topic made within its own delta.
            MetadataDelta delta = new MetadataDelta(image);
            delta.replay(message.message());
            image = delta.apply(new MetadataProvenance(offset++, 1, 1, true));
        }
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(MetadataVersion.fromFeatureLevel(level))
            .setEligibleLeaderReplicasEnabled(true)
            .build());
        return writer.records();
    }
}
