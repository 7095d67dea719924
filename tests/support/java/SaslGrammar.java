import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.CallbackHandler;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.sasl.SaslServer;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslServer;
import org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredJws;
import org.apache.kafka.common.security.plain.PlainAuthenticateCallback;
import org.apache.kafka.common.security.plain.internals.PlainSaslServer;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.scram.ScramCredentialCallback;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.scram.internals.ScramSaslServer;

/**
 * Prints the user that a broker's own classes read from first tokens; every password is accepted. Argument: a file of lines "MECHANISM BASE64".
 * One line of output each: the name in base64, "=" for the empty one, "token" where the owner of a delegation token would be looked up, "-" for a refusal.
 */
public final class SaslGrammar {
    public static void main(String[] arguments) throws Exception {
        StringBuilder out = new StringBuilder();
        try (BufferedReader lines = Files.newBufferedReader(Path.of(arguments[0]))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ", 2);
                out.append(named(words[0], Base64.getDecoder().decode(words[1]))).append('\n');
            }
        }
        System.out.print(out);
    }

    private static String named(String mechanism, byte[] token) {
        String[] name = {null};
        boolean[] delegated = {false};
        CallbackHandler handler = callbacks -> {
            for (Callback callback : callbacks) {
                if (callback instanceof NameCallback) {
                    name[0] = ((NameCallback) callback).getDefaultName();
                } else if (callback instanceof PlainAuthenticateCallback) {
                    ((PlainAuthenticateCallback) callback).authenticated(true);
                } else if (callback instanceof ScramCredentialCallback) {
                    delegated[0] = !callback.getClass().equals(ScramCredentialCallback.class);
                    ((ScramCredentialCallback) callback).scramCredential(new ScramCredential(new byte[16], new byte[32], new byte[32], 4096));
                    if (delegated[0]) {
                        throw new UnsupportedOperationException("whoever owns it");
                    }
                } else if (callback instanceof OAuthBearerValidatorCallback) {
                    OAuthBearerValidatorCallback bearer = (OAuthBearerValidatorCallback) callback;
                    OAuthBearerUnsecuredJws jws = new OAuthBearerUnsecuredJws(bearer.tokenValue(), "sub", "scope");
                    name[0] = jws.principalName();
                    bearer.token(jws);
                }
            }
        };
        try {
            SaslServer server = mechanism.equals("PLAIN") ? new PlainSaslServer(handler)
                : mechanism.equals("OAUTHBEARER") ? new OAuthBearerSaslServer(new Castable(handler))
                : new ScramSaslServer(ScramMechanism.forMechanismName(mechanism), Map.of(), handler);
            server.evaluateResponse(token);
        } catch (Exception refused) {
            return delegated[0] ? "token" : "-";
        }
        String encoded = Base64.getEncoder().encodeToString(name[0].getBytes(StandardCharsets.UTF_8));
        return encoded.isEmpty() ? "=" : encoded;
    }

    /** Hands all callbacks on. */
    private static final class Castable implements AuthenticateCallbackHandler {
        private final CallbackHandler handler;

        Castable(CallbackHandler handler) {
            this.handler = handler;
        }

        @Override
        public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        }

        @Override
        public void close() {
        }

        @Override
        public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
            handler.handle(callbacks);
        }
    }
}
