package subscriber

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

func TestDocumentedLimitsMatchCode(t *testing.T) {
	text, err := os.ReadFile("../../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for title, number := range map[string]string{
		"message":         fmt.Sprintf("%d MiB", contract.MaxMessageSize>>20),
		"nodes of a set":  fmt.Sprintf("%d,%03d", maxNodes/1000, maxNodes%1000),
		"memory of a set": fmt.Sprintf("%d MiB", maxSetMemory>>20),
		"upserts and removed names of a message, addresses and labels of a node, ports": fmt.Sprintf("%d, 2, %d, %d",
			contract.MaxChunk, contract.MaxLabels, contract.MaxSourcePorts),
		"log lines about reported changes": fmt.Sprintf("%d a second, %d at once", maxLogRate, maxLogBurst),
	} {
		if row := fmt.Sprintf("\n| %s | %s |", title, number); !strings.Contains(string(text), row) {
			t.Errorf("docs/limits.md has no row %q", row[1:])
		}
	}
}
