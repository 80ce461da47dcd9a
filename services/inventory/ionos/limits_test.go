package ionos

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/inventory/ionoshttp"
)

func TestDocumentedLimitsMatchCode(t *testing.T) {
	text, err := os.ReadFile("../../../docs/design/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	thousands := func(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
	for title, number := range map[string]string{
		"an answer of the cloud":                   fmt.Sprintf("%d MiB", DefaultMaxResponse>>20),
		"servers of a page":                        thousands(DefaultPageSize),
		"one server in it":                         fmt.Sprintf("%d KiB", ionoshttp.MaxServerBytes>>10),
		"the rest of a page, and any other answer": fmt.Sprintf("%d MiB", ionoshttp.MaxOtherBytes>>20),
		"servers of a datacenter":                  thousands(maxServers),
		"NICs of a server on the LANs, addresses of a NIC, an ID or a name": fmt.Sprintf("%d, %d, %s bytes",
			maxNICs, maxAddresses, thousands(maxTextLength)),
	} {
		if row := fmt.Sprintf("\n| %s | %s |", title, number); !strings.Contains(string(text), row) {
			t.Errorf("docs/design/limits.md has no row %q", row[1:])
		}
	}
}
