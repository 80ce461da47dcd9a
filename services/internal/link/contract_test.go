package link

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestContractStatesTheLimitsOfTheCode(t *testing.T) {
	text, err := os.ReadFile("../../../proto/slicefeed/inventory/v1/inventory.proto")
	if err != nil {
		t.Fatal(err)
	}
	contract := strings.Join(strings.Fields(strings.ReplaceAll(string(text), "//", "")), " ")
	for _, sentence := range []string{
		fmt.Sprintf("Of a message: %d MiB (R3).", maxMessageBytes>>20),
		fmt.Sprintf("Of a request: %d KiB; of the headers of a call: %d KiB.", maxRequestBytes>>10, maxHeaderBytes>>10),
		fmt.Sprintf("Of a connection: %d streams, and %d calls under way, streams included.", fewStreams.perConn, fewStreams.calls),
		fmt.Sprintf("%d connections; 64 streams; %.0f stream starts per second, %d at once; %d calls per second, %d at once.", maxConns, fewStreams.rate, fewStreams.burst, callRate, callBurst),
		fmt.Sprintf("Of a connection: %d streams, and %d calls under way. Of a client: 1,024 streams; %.0f stream starts per second, 1,024 at once.", manyStreams.perConn, manyStreams.calls, manyStreams.rate),
		fmt.Sprintf("The server pings a connection that was idle for %.0f s, and closes it if no response comes within %.0f s.", pingAfter.Seconds(), pingTimeout.Seconds()),
		fmt.Sprintf("one that pings more often than every %.0f s loses its connection", minPingInterval.Seconds()),
		fmt.Sprintf("an attempt to connect ends after %.0f s", connectTimeout.Seconds()),
		fmt.Sprintf("ends each connection with UNAVAILABLE after about %.0f minutes, with jitter", maxConnAge.Minutes()),
	} {
		if !strings.Contains(contract, sentence) {
			t.Errorf("inventory.proto does not say %q", sentence)
		}
	}
}
