package endpoints

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/slicefeed/slicefeed/services/writer/subscriber"
)

func TestListsABoundedNumberOfSources(t *testing.T) {
	label := strings.Repeat("n", maxNameLength)
	longestFeed := strings.TrimSuffix(subscriber.FeedName(label, label+"/"+label), "nnnn")
	for _, n := range []int{maxSources, maxSources + 1} { // any number can be configured
		status := Status{Synced: true}
		for i := range n {
			status.Sources = append(status.Sources, SourceStatus{Name: longestFeed + fmt.Sprintf("-%03d", i)})
		}
		listed := encodeStatus(status, nil).GetSources()
		checkEqual(t, "sources listed", len(listed), maxSources)
		checkEqual(t, "the last of them", listed[maxSources-1].GetName(), longestFeed+fmt.Sprintf("-%03d", maxSources-1))
	}
}

// A group is never split, so the largest one has to fit into a message: otherwise it would end every
// stream.
func TestLargestGroupFitsIntoMessage(t *testing.T) {
	long := strings.Repeat("n", maxNameLength)
	p := &publishedState{TargetStatus: TargetStatus{Ports: []Port{
		{Name: long, Protocol: "SCTP", Number: 65535, AppProtocol: strings.Repeat("p", maxAppProtocolLength)},
	}}}
	for i := range maxBackends {
		address := netip.AddrFrom16(
			[16]byte{0xfd, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, byte(i>>8) | 0x10, byte(i)},
		)
		p.backends = append(p.backends, Backend{Address: address, Conditions: ready, Source: long, Zone: long, Hostname: long})
	}
	group := p.encodeEntries(ServiceName{long, long}, true)[1]
	if size := proto.Size(group.Value); len(group.Value.GetGroup().GetBackends()) < maxBackends || size >= 3<<20 {
		t.Errorf("%d bytes, want less than the 3 MB of docs/design/limits.md", size)
	}
}
