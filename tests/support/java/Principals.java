import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Answers each line in Base64: "name DER" with Java's form of the name, "rules RULES NAME" with the principal name that Kafka's mapping
 * rules give; "!" and the error when they give none.
 */
public final class Principals {
    private Principals() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, true, "US-ASCII");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ", -1)));
        }
    }

    private static String answer(String[] words) {
        try {
            if (words[0].equals("name")) {
                return encode(new X500Principal(Base64.getDecoder().decode(words[1])).getName());
            }
            return encode(SslPrincipalMapper.fromRules(decode(words[1])).getName(decode(words[2])));
        } catch (Exception error) {
            return "!" + error.getClass().getSimpleName();
        }
    }

    private static String decode(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String encode(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
