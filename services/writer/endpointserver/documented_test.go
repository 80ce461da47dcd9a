package endpointserver

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

func TestListsABoundedNumberOfSources(t *testing.T) {
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
