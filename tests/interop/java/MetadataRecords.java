import java.io.*;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.*;

/**
 * JVM Kafka's view of metadata records, for tests. Files hold values, each after an int32 length.
 *   types                       every record type: number, class name, lowest and highest version
 *   levels                      every metadata.version: number, name, versions of written records
 *   roundtrip IN OUT            decode and encode each value
 */
public class MetadataRecords {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "types" -> types();
            case "levels" -> levels();
            case "roundtrip" -> write(args[2], read(args[1]));
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
}
