import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in this process, which saves a JVM start each.
 * A line of input is a main class and its arguments, tab-separated; after each tool's output comes
 * a line "@@ " with its exit code.
 */
public final class RunTools {
    private static final class Ended extends RuntimeException {
        final int code;

        Ended(int code) {
            this.code = code;
        }
    }

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((code, message) -> {
            throw new Ended(code);
        });
        Exit.setHaltProcedure((code, message) -> {
            throw new Ended(code);
        });
        PrintStream out = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            ByteArrayOutputStream caught = new ByteArrayOutputStream();
            PrintStream both = new PrintStream(caught, true);
            System.setOut(both);
            System.setErr(both);
            int code = run(words[0], Arrays.copyOfRange(words, 1, words.length), both);
            out.print(caught.toString(StandardCharsets.UTF_8));
            out.println("\n@@ " + code);
            out.flush();
        }
    }

    private static int run(String name, String[] arguments, PrintStream errors) throws Exception {
        Class<?> tool = Class.forName(name);
        try {
            for (Method method : tool.getMethods()) {
                if (method.getName().equals("mainNoExit")) {
                    return (int) method.invoke(null, (Object) arguments);
                }
            }
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Ended ended) {
                return ended.code;
            }
            thrown.getCause().printStackTrace(errors);
            return 99;
        }
    }
}
