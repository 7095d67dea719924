import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs many command-line tools in one JVM, so that a call costs no JVM start.
 *
 * A line on standard input: ID MAIN_CLASS ARGUMENT..., arguments in base64. Lines on standard output: "ID O|E BASE64" for a piece of the
 * command's standard output or error, "ID X CODE" at its end. Commands run at the same time, each on a thread of its own; what that
 * thread and its children print belongs to the command. A line with an ID alone interrupts the thread of that command. Ends with its standard input.
 */
public final class ToolServer {
    private static final PrintStream WIRE = System.out;
    private static final InheritableThreadLocal<Streams> CURRENT = new InheritableThreadLocal<>();

    public static void main(String[] ignored) throws IOException {
        System.setOut(new PrintStream(new Router(true), true));
        System.setErr(new PrintStream(new Router(false), true));
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setHaltProcedure((code, message) -> exit(code));
        Exit.setShutdownHookAdder((name, hook) -> { });
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        Map<String, Thread> threads = new HashMap<>();
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            if (words.length == 1) {
                threads.get(words[0]).interrupt();
                continue;
            }
            Thread thread = new Thread(() -> perform(words), "command-" + words[0]);
            thread.setDaemon(true);
            thread.start();
            threads.put(words[0], thread);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void perform(String[] words) {
        Streams streams = new Streams(words[0]);
        CURRENT.set(streams);
        try {
            String[] arguments = new String[words.length - 2];
            for (int i = 0; i < arguments.length; i++) {
                arguments[i] = new String(Base64.getDecoder().decode(words[i + 2]), StandardCharsets.UTF_8);
            }
            Class.forName(words[1]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException wrapped) {
            streams.end(wrapped.getCause());
        } catch (ReflectiveOperationException problem) {
            streams.end(problem);
        }
        System.out.flush();
        System.err.flush();
        streams.out.flush();
        streams.err.flush();
        send(words[0] + " X " + (streams.code == null ? 0 : streams.code));
    }

    /** The first call counts: some tools catch what is thrown here, print it and exit once more with another code. */
    private static void exit(int code) {
        Streams streams = CURRENT.get();
        if (streams != null && streams.code == null) {
            streams.code = code;
        }
        throw new ExitCalled();
    }

    private static void send(String line) {
        synchronized (WIRE) {
            WIRE.println(line);
            WIRE.flush();
        }
    }

    /** Thrown where a tool would have ended its JVM. */
    private static final class ExitCalled extends Error {
        ExitCalled() {
            super("the tool ended itself", null, false, false);
        }
    }

    private static final class Streams {
        final Piece out;
        final Piece err;
        volatile Integer code;

        Streams(String id) {
            out = new Piece(id + " O ");
            err = new Piece(id + " E ");
        }

        void end(Throwable problem) {
            if (code == null) {
                code = 1;
                problem.printStackTrace();
            }
        }
    }

    /** Collects what one command prints and passes it on at each flush that follows a line's end. */
    private static final class Piece extends ByteArrayOutputStream {
        private final String head;

        Piece(String head) {
            this.head = head;
        }

        @Override
        public synchronized void flush() {
            if (count > 0) {
                send(head + Base64.getEncoder().encodeToString(toByteArray()));
                reset();
            }
        }
    }

    private static final class Router extends OutputStream {
        private final boolean isOut;

        Router(boolean isOut) {
            this.isOut = isOut;
        }

        @Override
        public void write(int value) {
            Piece piece = piece();
            if (piece != null) {
                piece.write(value);
            }
        }

        @Override
        public void write(byte[] data, int from, int length) {
            Piece piece = piece();
            if (piece != null) {
                piece.write(data, from, length);
            }
        }

        @Override
        public void flush() {
            Piece piece = piece();
            if (piece != null) {
                piece.flush();
            }
        }

        private Piece piece() {
            Streams streams = CURRENT.get();
            return streams == null ? null : isOut ? streams.out : streams.err;
        }
    }
}
