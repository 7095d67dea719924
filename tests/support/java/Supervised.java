import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;

/**
 * Runs a main class in a JVM that ends with its parent.
 *
 * Arguments: [--format CLUSTER_ID] MAIN_CLASS ARGUMENTS... With --format the storage named in the last argument (a properties file) is
 * formatted first, which saves the start of another JVM. Standard input is a pipe from the parent: when it ends,
 * however the parent died, this JVM ends as well.
 */
public final class Supervised {
    public static void main(String[] arguments) throws Throwable {
        Thread watcher = new Thread(() -> haltAtEnd(System.in), "parent-watcher");
        watcher.setDaemon(true);
        watcher.start();
        int at = 0;
        if (arguments[0].equals("--format")) {
            format(arguments[1], arguments[arguments.length - 1]);
            at = 2;
        }
        try {
            Class.forName(arguments[at])
                .getMethod("main", String[].class)
                .invoke(null, (Object) Arrays.copyOfRange(arguments, at + 1, arguments.length));
        } catch (InvocationTargetException wrapped) {
            throw wrapped.getCause();
        }
    }

    private static void format(String clusterId, String properties) {
        int code = kafka.tools.StorageTool.execute(
            new String[] {"format", "--ignore-formatted", "-t", clusterId, "-c", properties}, System.out);
        if (code != 0) {
            System.exit(code);
        }
    }

    private static void haltAtEnd(InputStream parent) {
        try {
            while (parent.read() >= 0) { }
        } catch (IOException closed) {
            // Handled like the end of the input.
        }
        Runtime.getRuntime().halt(3);
    }
}
