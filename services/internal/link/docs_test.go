package link

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
)

func TestDocumentedLimitsMatchCode(t *testing.T) {
	text := string(must(os.ReadFile("../../../docs/design/limits.md"))(t))
	kb := func(n int) string { return fmt.Sprintf("%d KB", n>>10) }
	for title, number := range map[string]string{
		"unfinished TLS handshakes":                   fmt.Sprintf("%d,%03d", maxHandshakes/1000, maxHandshakes%1000),
		"time for a handshake and the first frame":    fmt.Sprintf("%.0f s", handshakeTimeout.Seconds()),
		"time for a client to connect, TLS included":  fmt.Sprintf("%.0f s", connectTimeout.Seconds()),
		"certificates that a peer presents":           fmt.Sprintf("%d, of %s", certificate.MaxCerts, kb(certificate.MaxBytes)),
		"bytes of a handshake":                        kb(maxHandshakeBytes),
		"connections":                                 fmt.Sprint(maxConns),
		"starts of streams":                           fmt.Sprintf("%.0f a second, %d at once; %.0f and 1,024 with exported Services", fewStreams.rate, fewStreams.burst, manyStreams.rate),
		"calls":                                       fmt.Sprintf("%d a second, %d at once", callRate, callBurst),
		"live streams":                                fmt.Sprintf("%d; %d with exported Services", fewStreams.perConn, manyStreams.perConn),
		"calls under way":                             fmt.Sprintf("%d; %d with exported Services", fewStreams.calls, manyStreams.calls),
		"names of a certificate":                      fmt.Sprintf("%d, and %d constraints", certificate.MaxNames, certificate.MaxNames),
		"RSA keys that a peer presents":               fmt.Sprintf("%d,%03d bits", certificate.MaxRSA/1000, certificate.MaxRSA%1000),
		"connections above that":                      fmt.Sprintf("%d, for %.0f s", maxExcessConns, excessLifetime.Seconds()),
		"bytes read":                                  fmt.Sprintf("%s a second, %s at once", kb(byteRate), kb(byteBurst)),
		"request":                                     kb(maxRequestBytes),
		"headers of a call":                           kb(maxHeaderBytes),
		"unread bytes of a call, and of a connection": kb(maxRequestBytes),
		"a client's pings":                            fmt.Sprintf("%.0f s apart", minPingInterval.Seconds()),
		"an answer to our ping":                       fmt.Sprintf("%.0f s", pingTimeout.Seconds()),
		"age":                                         fmt.Sprintf("%.0f min", maxConnAge.Minutes()),
	} {
		if row := fmt.Sprintf("\n| %s | %s |", title, number); !strings.Contains(text, row) {
			t.Errorf("docs/design/limits.md has no row %q", row[1:])
		}
	}
}
