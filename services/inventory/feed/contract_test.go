package feed

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

const serverID = "11111111-1111-4111-8111-111111111111"

// anyText draws texts as an API, a file or a cloud could contain them, most of them usual.
func anyText(usual ...string) *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom(usual), rapid.SampledFrom(usual), rapid.SampledFrom([]string{
		"", strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("x", 128), strings.Repeat("x", 129),
		strings.Repeat("x", 253), strings.Repeat("x", 254), strings.Repeat("é", 300), "\xff\xfe", "a\x00b",
	}))
}

var anyAddress = rapid.SampledFrom([]netip.Addr{
	{},
	netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("::"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"),
	netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("::ffff:0.0.0.0"),
	netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("127.0.0.1"),
	netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("ff02::1"),
})

var anyCandidate = rapid.Custom(func(t *rapid.T) roster.Node {
	return roster.Node{
		Name:        anyText("a", "b", "c").Draw(t, "name"),
		UID:         anyText("1", "1", "2").Draw(t, "uid"),
		ProviderID:  anyText("", "ionos://"+serverID).Draw(t, "provider ID"),
		SystemUUID:  anyText("", serverID).Draw(t, "system UUID"),
		InternalIPs: rapid.SliceOfN(anyAddress, 0, 3).Draw(t, "InternalIPs"),
		State:       roster.NodeState(rapid.SampledFrom([]uint8{1, 1, 1, 2, 3, 0, 4, 255}).Draw(t, "state")),
		Zone:        anyText("z").Draw(t, "zone"),
		Region:      anyText("r").Draw(t, "region"),
		Hostname:    anyText("", "db-0", "DB", "db.0", "-").Draw(t, "hostname"),
		Ports: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) contract.Port {
			return contract.Port{
				Name: anyText("web").Draw(t, "port name"), Protocol: anyText("TCP", "UDP").Draw(t, "protocol"),
				Number: rapid.SampledFrom([]uint16{0, 1, 80, 65535}).Draw(t, "port"),
			}
		}), 0, 20).Draw(t, "ports"),
		Labels: map[string]string{
			"pool": anyText("blue", "red").Draw(t, "pool"), anyText("k").Draw(t, "key"): anyText("v").Draw(t, "value"),
		},
		Excluded: roster.OmissionReason(rapid.SampledFrom([]uint8{0, 0, 0, 1}).Draw(t, "excluded")),
		Invalid:  rapid.SampledFrom([]string{"", "", "", "bad"}).Draw(t, "bad"),
	}
})

var anyUpdate = rapid.Custom(func(t *rapid.T) roster.Update {
	return roster.Update{
		Changed:  rapid.SliceOfN(anyCandidate, 0, 4).Draw(t, "changed"),
		Removed:  rapid.SliceOfN(anyText("a", "b"), 0, 1).Draw(t, "removed"),
		Verified: 1, PartialError: anyText("", "").Draw(t, "flaw"), Failure: anyText("", "").Draw(t, "failure"),
	}
})

var anyListing = rapid.Custom(func(t *rapid.T) roster.Listing {
	var l roster.Listing
	for _, id := range []string{serverID, "22222222-2222-4222-8222-222222222222", "\xff"} {
		l.Servers = append(l.Servers, roster.Server{ID: id, Name: anyText("a", "b").Draw(t, "server"), NICs: []roster.NIC{
			{ID: "n", LAN: "1", Addresses: rapid.SliceOfN(anyAddress, 0, 3).Draw(t, "server's addresses")},
		}})
	}
	return l
})

// Whatever the cloud, a Node, a record or a Service reports, what is sent keeps the contract: a client
// that detects a protocol violation drops the stream, and then none of its nodes is updated.
func TestR13AnyReportKeepsTheContract(t *testing.T) {
	anywhere := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	rapid.Check(t, func(t *rapid.T) {
		method := rapid.SampledFrom([]roster.Method{roster.ByCloud, roster.ByNodeAddress, roster.ByRecord}).Draw(t, "method")
		exported := rapid.SampledFrom([][]string{nil, {"pool", "k", "", strings.Repeat("x", 129)}}).Draw(t, "exported labels")
		nodes, set := roster.New(roster.Config{Method: method, CIDRs: anywhere, ExportLabels: exported}), NewSet("", "epoch")
		publish := func(now time.Time, update roster.Input) {
			changes := nodes.Apply(now, update)
			set.Publish(nodes.Status(now), changes)
		}
		server := &Server{cfg: Config{
			Sets:     set,
			Identify: func(context.Context) (Client, error) { return Client{SAN: "writer"}, nil },
		}}
		var client strictClient
		reader := set.connect(&client)
		now := time.Now()
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			now = now.Add(time.Minute)
			update := anyUpdate.Draw(t, "update")
			update.LastContact = now
			publish(now, roster.Input{
				Source: update, Verification: &roster.VerificationResult{StartedAt: now, Mode: roster.FullVerification, Number: 1},
			})
			if rapid.Bool().Draw(t, "listed") {
				l := anyListing.Draw(t, "listing")
				publish(now, roster.Input{
					Source: roster.Update{LastContact: now}, Listing: &roster.ListingResult{StartedAt: now, Listing: l},
				})
			}
			if err := receiveAll(&client, reader); err != nil {
				t.Fatal(err)
			}
			response, err := server.ListNodes(t.Context(), &inventoryv1.ListNodesRequest{})
			if status.Code(err) == codes.Unavailable { // nothing is published yet
				continue
			}
			if err == nil {
				_, err = proto.Marshal(response)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}
