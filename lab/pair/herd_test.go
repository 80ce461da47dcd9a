package pair

import (
	"encoding/json"
	"net/netip"
	"testing"
)

// What a change costs depends on the size of the object that changes.
func TestANodeOfAHerdIsAsLargeAsOneThatIsInUse(t *testing.T) {
	text, err := json.Marshal(grown("herd-000001", "0f0c8f5e-5d4e-4f0a-b8a5-3f1f5a1d7a10", netip.MustParseAddr("198.18.0.1")))
	if err != nil {
		t.Fatal(err)
	}
	if kb := len(text) >> 10; kb < 10 || kb > 16 {
		t.Errorf("it has %d KB", kb)
	}
}
