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

func TestContractStatesTheLimitsOfTheSubscriber(t *testing.T) {
	text, err := os.ReadFile("../../../proto/slicefeed/inventory/v1/inventory.proto")
	if err != nil {
		t.Fatal(err)
	}
	contract := strings.Join(strings.Fields(strings.ReplaceAll(string(text), "//", "")), " ")
	for _, sentence := range []string{
		fmt.Sprintf("accepts sets of up to %d,%03d nodes and %d MiB of memory", maxNodes/1000, maxNodes%1000, maxSetMemory>>20),
		fmt.Sprintf("Before the first message the interval is %.0f s, counted from the call.", defaultHeartbeat.Seconds()),
		fmt.Sprintf("a heartbeat interval outside of %.0f s to %.0f s, which the client moves into it", minHeartbeat.Seconds(), maxHeartbeat.Seconds()),
		fmt.Sprintf("between %.1f s and a limit. The limit starts at %.0f s, doubles with each end up to %.0f s, and is back at %.0f s after a stream was `synced` for %.0f s",
			minDelay.Seconds(), initialLimit.Seconds(), maxDelay.Seconds(), initialLimit.Seconds(), stableAfter.Seconds()),
		fmt.Sprintf("doubled with each earlier violation up to %.0f min", maxViolationDelay.Minutes()),
	} {
		if !strings.Contains(contract, sentence) {
			t.Errorf("inventory.proto does not say %q", sentence)
		}
	}
}
