package subscriber

import (
	"maps"
	"net/netip"
	"strings"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// decodeNode checks one upsert by itself.
func decodeNode(received time.Time, n *inventoryv1.Node) (*Member, *Violation) {
	name := n.GetName()
	if name == "" || len(name) > inventoryv1.MaxNameLength {
		return nil, violationf(InvalidName, "a node's name has %d bytes: 1 to %d are expected", len(name), inventoryv1.MaxNameLength)
	}
	if l := len(n.GetFingerprint()); l != inventoryv1.DigestSize {
		return nil, violationf(InvalidFingerprint, "the fingerprint of node %q has %d bytes", name, l)
	}
	addresses, b := decodeAddresses(name, n.GetAddresses())
	if b != nil {
		return nil, b
	}
	if len(n.GetUid()) > inventoryv1.MaxUIDLength || len(n.GetZone()) > inventoryv1.MaxLabelValueLength ||
		len(n.GetRegion()) > inventoryv1.MaxLabelValueLength || len(n.GetLabels()) > inventoryv1.MaxLabels {
		return nil, violationf(LimitExceeded, "UID, zone, region or number of labels of node %q", name)
	}
	for key, value := range n.GetLabels() {
		if len(key) > inventoryv1.MaxLabelKeyLength || len(value) > inventoryv1.MaxLabelValueLength {
			return nil, violationf(LimitExceeded, "size of a label of node %q", name)
		}
	}
	return &Member{
		Name: name, UID: n.GetUid(), Addresses: addresses,
		State: decodeState(n.GetState()), Since: received.Add(-clampAge(n.GetStateAge())),
		Zone: n.GetZone(), Region: n.GetRegion(), Labels: maps.Clone(n.GetLabels()),
		fingerprint: [16]byte(n.GetFingerprint()),
	}, nil
}

func decodeAddresses(name string, texts []string) ([]netip.Addr, *Violation) {
	if len(texts) == 0 || len(texts) > 2 {
		return nil, violationf(InvalidAddress, "node %q has %d addresses: one of each family at most, one at least", name, len(texts))
	}
	addresses := make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		// The canonical form alone: two spellings of one address would pass for two.
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.Is4In6() || a.IsUnspecified() || a.String() != text {
			return nil, violationf(InvalidAddress, "%.64q of node %q is no address in canonical form", text, name)
		}
		addresses = append(addresses, a)
	}
	if len(addresses) == 2 && addresses[0].Is4() == addresses[1].Is4() {
		return nil, violationf(InvalidAddress, "node %q has two addresses of one family", name)
	}
	return addresses, nil
}

func decodeState(s inventoryv1.NodeState) NodeState {
	switch s {
	case inventoryv1.NodeState_NODE_STATE_READY:
		return Ready
	case inventoryv1.NodeState_NODE_STATE_DRAINING:
		return Draining
	case inventoryv1.NodeState_NODE_STATE_NOT_READY:
		return NotReady
	default:
		return Unknown
	}
}

// ageTolerance is how far apart two tellings of one moment can be, for the way that a message took.
const ageTolerance = 2 * time.Second

// decodePartStatus reads the state of a part. The moment that it has been in this state since stays
// as it was told first, however long later messages were under way.
func decodePartStatus(received time.Time, p *inventoryv1.PartStatus, before PartStatus) PartStatus {
	part := PartStatus{Since: received.Add(-clampAge(p.GetAge()))}
	switch p.GetState() {
	case inventoryv1.SyncState_SYNC_STATE_SYNCED:
		part.State = Synced
	case inventoryv1.SyncState_SYNC_STATE_UNSYNCED:
		part.State = Unsynced
	}
	if part.State != Synced {
		part.Reason = p.GetReason()
		if len(part.Reason) > inventoryv1.MaxReasonLength {
			part.Reason = strings.ToValidUTF8(part.Reason[:inventoryv1.MaxReasonLength], "")
		}
	}
	if part.State == before.State && !before.Since.IsZero() && part.Since.Sub(before.Since).Abs() < ageTolerance {
		part.Since = before.Since
	}
	return part
}

// decodePorts reads the ports of the source's own endpoints.
func decodePorts(all []*inventoryv1.SourcePort) ([]SourcePort, *Violation) {
	if len(all) > inventoryv1.MaxSourcePorts {
		return nil, violationf(LimitExceeded, "a status with %d ports: at most %d", len(all), inventoryv1.MaxSourcePorts)
	}
	var ports []SourcePort
	for _, p := range all {
		if n := p.GetPort(); n < 1 || n > 65535 || len(p.GetName()) > inventoryv1.MaxLabelValueLength || len(p.GetProtocol()) > inventoryv1.MaxLabelValueLength {
			return nil, violationf(LimitExceeded, "port %d of the status, its name or its protocol", n)
		}
		ports = append(ports, SourcePort{Name: p.GetName(), Protocol: p.GetProtocol(), Number: uint16(p.GetPort())})
	}
	return ports, nil
}

// clampAge is a peer's duration, bounded to what an age can be.
func clampAge(d *durationpb.Duration) time.Duration {
	const eternity = 50 * 365 * 24 * time.Hour
	return min(max(d.AsDuration(), 0), eternity)
}
