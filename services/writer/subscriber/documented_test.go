package subscriber

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

func TestDocumentedLimitsMatchCode(t *testing.T) {
	text, err := os.ReadFile("../../../docs/design/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for title, number := range map[string]string{
		"message":         fmt.Sprintf("%d MiB", contract.MaxMessageSize>>20),
		"nodes of a set":  fmt.Sprintf("%d,%03d", maxNodes/1000, maxNodes%1000),
		"memory of a set": fmt.Sprintf("%d MiB", maxSetMemory>>20),
		"upserts and removed names of a message, addresses and labels of a node, ports, workloads": fmt.Sprintf("%d, 2, %d, %d, %d",
			contract.MaxChunk, contract.MaxLabels, contract.MaxSourcePorts, contract.MaxWorkloads),
	} {
		if row := fmt.Sprintf("\n| %s | %s |", title, number); !strings.Contains(string(text), row) {
			t.Errorf("docs/design/limits.md has no row %q", row[1:])
		}
	}
}

func TestContractStatesTheLimitsOfTheSubscriber(t *testing.T) {
	text, err := os.ReadFile("../../../proto/slicefeed/inventory/v1/inventory.proto")
	if err != nil {
		t.Fatal(err)
	}
	contract := strings.Join(strings.Fields(strings.ReplaceAll(string(text), "//", "")), " ")
	sentence := fmt.Sprintf("accepts sets of up to %d,%03d nodes and %d MiB of memory", maxNodes/1000, maxNodes%1000, maxSetMemory>>20)
	if !strings.Contains(contract, sentence) {
		t.Errorf("inventory.proto does not say %q", sentence)
	}
}
