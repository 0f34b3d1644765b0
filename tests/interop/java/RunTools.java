import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Runs Kafka's command line tools one after the other in this process, which saves a JVM start each.
 * A line of input is a main class and its arguments, tab-separated; after each tool's output comes
 * a line "@@ " with its exit code.
 */
public final class RunTools {
    /** Thrown to leave a tool that wants to end the process with a failure. */
    private static final class Ended extends RuntimeException {
    }

    private static Integer asked;

    public static void main(String[] args) throws Exception {
        Class<?> exit = exitClass();
        for (String setter : new String[] {"setExitProcedure", "setHaltProcedure"}) {
            for (Method method : exit.getMethods()) {
                if (method.getName().equals(setter)) {
                    method.invoke(null, leaving(method.getParameterTypes()[0]));
                }
            }
        }
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

    /** Kafka's own door out of the process; releases from 4.4 on have it in another package. */
    private static Class<?> exitClass() throws ClassNotFoundException {
        String utils = "org.apache.kafka.common.utils.";
        try {
            return Class.forName(utils + "Exit");
        } catch (ClassNotFoundException moved) {
            return Class.forName(utils + "internals.Exit");
        }
    }

    private static Object leaving(Class<?> procedure) {
        return Proxy.newProxyInstance(procedure.getClassLoader(), new Class<?>[] {procedure}, (self, method, values) -> {
            int code = (int) values[0];
            asked = asked == null ? code : asked;
            if (code != 0) {
                throw new Ended();
            }
            return null;
        });
    }

    private static int run(String name, String[] arguments, PrintStream errors) throws Exception {
        asked = null;
        int code = 0;
        try {
            Class<?> tool = Class.forName(name);
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (ClassNotFoundException missing) {
            errors.println("no class " + name);
            code = 98;
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                thrown.getCause().printStackTrace(errors);
                code = 99;
            }
        }
        return asked == null ? code : asked;
    }
}
