package endpointserver

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/health"
	"google.golang.org/protobuf/proto"

	"github.com/slicefeed/slicefeed/services/internal/stream"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

func TestDocumentedLimitsMatchCode(t *testing.T) {
	text, err := os.ReadFile("../../../docs/design/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	store := endpoints.NewStore("instance")
	defaults := New(Config{Store: store, Health: health.NewServer(), Metrics: NewMetrics(prometheus.NewRegistry(), store)}).streams
	thousands := func(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
	for title, number := range map[string]string{
		"live streams of WatchEndpoints":       fmt.Sprint(defaults.MaxPerClient),
		"a message that is not read":           fmt.Sprintf("%.0f s", stream.SendTimeout.Seconds()),
		"Services and namespaces in a request": fmt.Sprint(maxSelectors),
		"addresses of a port that is gathered": thousands(endpoints.MaxBackends),
	} {
		if row := fmt.Sprintf("\n| %s | %s |", title, number); !strings.Contains(string(text), row) {
			t.Errorf("docs/design/limits.md has no row %q", row[1:])
		}
	}
}

func TestContractStatesHowManySourcesAreListed(t *testing.T) {
	text, err := os.ReadFile("../../../proto/slicefeed/writer/v1/writer.proto")
	if err != nil {
		t.Fatal(err)
	}
	contract := strings.Join(strings.Fields(strings.ReplaceAll(string(text), "//", "")), " ")
	if sentence := fmt.Sprintf(
		"sorted by name; at most %d. repeated SourceStatus sources = 3;",
		maxSources,
	); !strings.Contains(
		contract,
		sentence,
	) {
		t.Errorf("writer.proto does not say %q", sentence)
	}
	label := strings.Repeat("n", maxNameLength)
	longestFeed := strings.TrimSuffix(subscriber.FeedName(label, label+"/"+label), "nnnn")
	for _, n := range []int{maxSources, maxSources + 1} { // any number can be configured
		status := endpoints.Status{Synced: true}
		for i := range n {
			status.Sources = append(status.Sources, endpoints.SourceStatus{Name: longestFeed + fmt.Sprintf("-%03d", i)})
		}
		listed := encodeStatus(status).GetSources()
		checkEqual(t, "sources listed", len(listed), maxSources)
		checkEqual(t, "the last of them", listed[maxSources-1].GetName(), longestFeed+fmt.Sprintf("-%03d", maxSources-1))
	}
}

// A group is never split, so the largest one has to fit into a message: otherwise it would end every
// stream.
func TestLargestGroupFitsIntoMessage(t *testing.T) {
	long := strings.Repeat("n", maxNameLength)
	e := &endpoints.Entry{
		Key: strings.Repeat("k", maxKeyLength), Namespace: long, Service: long, Kind: endpoints.KindGroup,
		Port: endpoints.Port{Name: long, Protocol: "SCTP", Number: 65535, AppProtocol: strings.Repeat("p", maxAppProtocolLength)},
	}
	for i := range endpoints.MaxBackends {
		address := netip.AddrFrom16(
			[16]byte{0xfd, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, byte(i>>8) | 0x10, byte(i)},
		)
		e.Backends = append(e.Backends, endpoints.Backend{Address: address, Conditions: ready, Source: long, Zone: long, Hostname: long})
	}
	if size := proto.Size(encodeEntry(e)); size >= 3<<20 {
		t.Errorf("%d bytes, want less than the 3 MB of docs/design/limits.md", size)
	}
}
