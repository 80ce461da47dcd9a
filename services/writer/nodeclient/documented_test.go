package nodeclient

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestDocumentedLimitsMatchCode(t *testing.T) {
	text, err := os.ReadFile("../../../docs/design/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	if row := fmt.Sprintf(
		"\n| log lines about reported changes | %d a second, %d at once |",
		maxLogRate,
		maxLogBurst,
	); !strings.Contains(
		string(text),
		row,
	) {
		t.Errorf("docs/design/limits.md has no row %q", row[1:])
	}
}

func TestContractStatesTheDelaysOfTheClient(t *testing.T) {
	text, err := os.ReadFile("../../../proto/slicefeed/inventory/v1/inventory.proto")
	if err != nil {
		t.Fatal(err)
	}
	contract := strings.Join(strings.Fields(strings.ReplaceAll(string(text), "//", "")), " ")
	for _, sentence := range []string{
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
