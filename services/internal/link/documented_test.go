package link

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestTheDocumentedLimitsAreTheOnesInForce(t *testing.T) {
	text := string(must(os.ReadFile("../../../docs/limits.md"))(t))
	kb := func(n int) string { return fmt.Sprintf("%d KB", n>>10) }
	for title, number := range map[string]string{
		"unfinished TLS handshakes":                fmt.Sprintf("%d,%03d", maxHandshakes/1000, maxHandshakes%1000),
		"time for a handshake and the first frame": fmt.Sprintf("%.0f s", handshakeTimeout.Seconds()),
		"certificates that a peer presents":        fmt.Sprintf("%d, of %s", maxCerts, kb(maxCertBytes)),
		"connections":                              fmt.Sprint(maxConns),
		"starts of streams":                        fmt.Sprintf("%d a second, %d at once", streamRate, streamBurst),
		"calls":                                    fmt.Sprintf("%d a second, %d at once", callRate, callBurst),
		"calls under way":                          fmt.Sprint(maxConnStreams),
		"request":                                  kb(maxRequest),
		"headers of a call":                        kb(maxHeaders),
		"unread bytes of a call, and of a connection": kb(maxRequest),
		"a client's pings":      fmt.Sprintf("%.0f s apart", pingAllowed.Seconds()),
		"an answer to our ping": fmt.Sprintf("%.0f s", pingTimeout.Seconds()),
		"age":                   fmt.Sprintf("%.0f min", maxAge.Minutes()),
	} {
		if row := fmt.Sprintf("\n| %s | %s |", title, number); !strings.Contains(text, row) {
			t.Errorf("docs/limits.md has no row %q", row[1:])
		}
	}
}
