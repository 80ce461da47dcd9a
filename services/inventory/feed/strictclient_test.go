package feed

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"unicode/utf8"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"google.golang.org/protobuf/proto"
)

// strictClient is a client written from the comments of inventory.proto alone: it applies the messages of
// one stream, and reports whatever a server never sends according to rule R13.
type strictClient struct {
	set         map[string]*inventoryv1.Node
	cursor      *inventoryv1.Cursor
	digest      []byte
	observation uint64 // its number, in the cursor's epoch

	staged         map[string]*inventoryv1.Node
	reset          bool // staged started as an empty set
	messages       int
	syncedInStream bool // a message of this stream was synced
}

// begin starts another stream with what the client has, and returns the request.
func (c *strictClient) begin() *inventoryv1.WatchNodesRequest {
	c.staged, c.reset, c.messages, c.syncedInStream = nil, false, 0, false
	if c.cursor == nil {
		return &inventoryv1.WatchNodesRequest{}
	}
	return &inventoryv1.WatchNodesRequest{Cursor: proto.CloneOf(c.cursor), Digest: c.digest}
}

// receive applies the next message after it was encoded and decoded.
func (c *strictClient) receive(sent *inventoryv1.WatchNodesResponse) error {
	wire, err := proto.Marshal(sent)
	if err != nil {
		return fmt.Errorf("message cannot be encoded: %w", err)
	}
	if len(wire) > 4<<20 {
		return fmt.Errorf("message of %d bytes", len(wire))
	}
	m := &inventoryv1.WatchNodesResponse{}
	if err := proto.Unmarshal(wire, m); err != nil {
		return err
	}
	c.messages++
	if (c.messages == 1) != (m.GetHeartbeatInterval() != nil) {
		return fmt.Errorf("message %d: heartbeat interval %v", c.messages, m.GetHeartbeatInterval())
	}
	if err := checkStatus(m.GetStatus()); err != nil {
		return err
	}
	if err := c.stage(m); err != nil {
		return err
	}
	if !m.GetSynced() {
		if m.GetCursor() != nil {
			return fmt.Errorf("cursor %v without synced", m.GetCursor())
		}
		return nil
	}
	if err := c.check(m); err != nil {
		return err
	}
	c.set, c.cursor, c.digest, c.observation = c.staged, m.GetCursor(), m.GetDigest(), m.GetStatus().GetObservation()
	c.staged, c.reset, c.syncedInStream = nil, false, true
	return nil
}

func (c *strictClient) stage(m *inventoryv1.WatchNodesResponse) error {
	if len(m.GetUpserts()) > 500 || len(m.GetRemoved()) > 500 {
		return fmt.Errorf("%d upserts and %d removed names in a message", len(m.GetUpserts()), len(m.GetRemoved()))
	}
	switch {
	case m.GetReset_():
		c.staged, c.reset = map[string]*inventoryv1.Node{}, true
	case c.staged == nil:
		c.staged = map[string]*inventoryv1.Node{}
		maps.Copy(c.staged, c.set)
	}
	inMessage := map[string]bool{}
	for _, name := range m.GetRemoved() {
		if c.staged[name] == nil || inMessage[name] {
			return fmt.Errorf("removal of %q, which is not in the staged set", name)
		}
		inMessage[name] = true
		delete(c.staged, name)
	}
	for _, n := range m.GetUpserts() {
		if inMessage[n.GetName()] {
			return fmt.Errorf("node %q twice in a message", n.GetName())
		}
		inMessage[n.GetName()] = true
		if err := checkNode(n); err != nil {
			return fmt.Errorf("node %q: %w", n.GetName(), err)
		}
		c.staged[n.GetName()] = n
	}
	return nil
}

func (c *strictClient) check(m *inventoryv1.WatchNodesResponse) error {
	var sum [16]byte
	owners := map[string]string{}
	for name, n := range c.staged {
		for i := range sum {
			sum[i] ^= n.GetFingerprint()[i]
		}
		for _, a := range n.GetAddresses() {
			if other, taken := owners[a]; taken {
				return fmt.Errorf("%q and %q share the address %s", name, other, a)
			}
			owners[a] = name
		}
	}
	epoch := m.GetCursor().GetEpoch()
	sameEpoch := c.cursor != nil && c.cursor.GetEpoch() == epoch
	switch {
	case len(epoch) == 0 || len(epoch) > 64:
		return fmt.Errorf("epoch of %d bytes", len(epoch))
	case int(m.GetCount()) != len(c.staged):
		return fmt.Errorf("count is %d, the staged set has %d nodes", m.GetCount(), len(c.staged))
	case string(m.GetDigest()) != string(sum[:]):
		return fmt.Errorf("digest is %x, that of the staged set %x", m.GetDigest(), sum)
	case sameEpoch && m.GetCursor().GetRevision() < c.cursor.GetRevision():
		return fmt.Errorf("revision goes back from %d to %d", c.cursor.GetRevision(), m.GetCursor().GetRevision())
	case sameEpoch && m.GetStatus().GetObservation() < c.observation:
		return fmt.Errorf("observation goes back from %d to %d", c.observation, m.GetStatus().GetObservation())
	case c.syncedInStream && !sameEpoch && !c.reset:
		return fmt.Errorf("epoch changes to %q without a reset", epoch)
	}
	return nil
}

var hostnameText = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`) // RFC 1123

func checkNode(n *inventoryv1.Node) error {
	switch {
	case n.GetName() == "" || len(n.GetName()) > 253:
		return fmt.Errorf("name of %d bytes", len(n.GetName()))
	case len(n.GetUid()) > 128 || len(n.GetZone()) > 63 || len(n.GetRegion()) > 63 || len(n.GetLabels()) > 256:
		return fmt.Errorf(
			"UID of %d bytes, zone of %d, region of %d, %d labels",
			len(n.GetUid()),
			len(n.GetZone()),
			len(n.GetRegion()),
			len(n.GetLabels()),
		)
	case n.GetHostname() != "" && !hostnameText.MatchString(n.GetHostname()):
		return fmt.Errorf("hostname %.100q", n.GetHostname())
	case len(n.GetFingerprint()) != 16:
		return fmt.Errorf("fingerprint of %d bytes", len(n.GetFingerprint()))
	case n.GetState() < inventoryv1.NodeState_NODE_STATE_READY || n.GetState() > inventoryv1.NodeState_NODE_STATE_NOT_READY:
		return fmt.Errorf("state %v", n.GetState())
	case len(n.GetAddresses()) == 0:
		return fmt.Errorf("no address")
	}
	families := map[bool]bool{}
	for _, text := range n.GetAddresses() {
		a, err := netip.ParseAddr(text)
		if err != nil || a.String() != text || a.Zone() != "" || a.Is4In6() || a.IsUnspecified() || families[a.Is4()] {
			return fmt.Errorf("addresses %q", n.GetAddresses())
		}
		families[a.Is4()] = true
	}
	for key, value := range n.GetLabels() {
		if len(key) > 317 || len(value) > 63 {
			return fmt.Errorf("label of %d and %d bytes", len(key), len(value))
		}
	}
	for _, p := range n.GetPorts() {
		if p.GetPort() < 1 || p.GetPort() > 65535 || len(p.GetName()) > 63 || len(n.GetPorts()) > 16 ||
			p.GetProtocol() != "TCP" && p.GetProtocol() != "UDP" && p.GetProtocol() != "SCTP" {
			return fmt.Errorf("ports %v", n.GetPorts())
		}
	}
	return nil
}

func checkStatus(s *inventoryv1.SourceStatus) error {
	if s.GetMembership() == nil || s.GetAddresses() == nil {
		return fmt.Errorf("status %v", s)
	}
	for _, part := range []*inventoryv1.PartStatus{s.GetMembership(), s.GetAddresses()} {
		if len(part.GetReason()) > 1024 || !utf8.ValidString(part.GetReason()) {
			return fmt.Errorf("reason of %d bytes", len(part.GetReason()))
		}
	}
	return nil
}
