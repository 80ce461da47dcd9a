package hostile

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
)

type (
	message = inventoryv1.WatchNodesResponse
	node    = inventoryv1.Node
)

// liar is an inventory that says what its chance has it say. It knows the contract, and
// keeps and breaks it as it likes.
type liar struct {
	inventoryv1.UnimplementedInventoryServiceServer

	mu       sync.Mutex
	rand     *rand.Rand
	set      []*node // that the writer should have, if all goes well
	revision uint64
	number   uint64 // of the last observation
	epoch    string
	lives    int
	story    []string
	began    time.Time
	confirms int       // how often it said that there is nobody who serves, one time after another
	nobody   time.Time // when it said so first
	believed time.Time // when that could have been believed last
}

func newLiar(seed1, seed2 uint64) *liar {
	l := &liar{rand: rand.New(rand.NewPCG(seed1, seed2)), began: time.Now()}
	l.live()
	for i := range 2 + l.rand.IntN(12) {
		l.set = append(l.set, aNode(fmt.Sprintf("node-%d", i), fmt.Sprintf("10.0.1.%d", i+1)))
	}
	return l
}

func (l *liar) live() {
	l.lives++
	l.epoch, l.revision, l.number = fmt.Sprintf("life-%d", l.lives), 1, 1
}

func (l *liar) tellf(format string, args ...any) {
	l.story = append(l.story, fmt.Sprintf("%8.1f s ", time.Since(l.began).Seconds())+fmt.Sprintf(format, args...))
}

// aNode has a fingerprint as an inventory would mint it.
func aNode(name, address string) *node {
	return mint(&node{Name: name, Uid: "uid-" + name, Addresses: []string{address}, State: inventoryv1.NodeState_NODE_STATE_READY})
}

func mint(n *node) *node {
	sum := sha256.Sum256([]byte(fmt.Sprint(n.GetName(), n.GetAddresses(), n.GetState(), n.GetUid())))
	n.Fingerprint = sum[:16]
	return n
}

func digest(set []*node) []byte {
	d := make([]byte, 16)
	for _, n := range set {
		for i, b := range n.GetFingerprint() {
			d[i%16] ^= b
		}
	}
	return d
}

func fresh(number uint64) *inventoryv1.SourceStatus {
	part := func() *inventoryv1.PartStatus {
		return &inventoryv1.PartStatus{State: inventoryv1.SyncState_SYNC_STATE_SYNCED, Age: durationpb.New(time.Minute)}
	}
	return &inventoryv1.SourceStatus{Membership: part(), Addresses: part(), Observation: number, ObservationAge: durationpb.New(0)}
}

// whole is the present set as a reset that keeps the contract.
func (l *liar) whole() *message {
	return &message{
		Reset_: true, Upserts: l.set, Synced: true, Count: uint32(len(l.set)), Digest: digest(l.set), Status: fresh(l.number),
		Cursor: &inventoryv1.Cursor{Epoch: l.epoch, Revision: l.revision}, HeartbeatInterval: durationpb.New(5 * time.Second),
	}
}

// WatchNodes begins with the set as the liar has it, and goes on as chance will have it.
func (l *liar) WatchNodes(_ *inventoryv1.WatchNodesRequest, to grpc.ServerStreamingServer[message]) error {
	l.mu.Lock()
	m := l.whole()
	l.judge([]any{m})
	l.mu.Unlock()
	if err := to.SendMsg(m); err != nil {
		return err
	}
	for {
		l.mu.Lock()
		act := acts[l.rand.IntN(len(acts))]
		l.tellf("%s", act.name)
		next, wait := act.next(l), time.Duration(l.rand.Int64N(int64(7*time.Second)))
		l.judge(next)
		l.mu.Unlock()
		for _, m := range next {
			switch m := m.(type) {
			case error:
				return m
			case time.Duration:
				wait = m
			default:
				if err := to.SendMsg(m); err != nil {
					return err
				}
			}
		}
		select {
		case <-time.After(wait):
		case <-to.Context().Done():
			return to.Context().Err()
		}
	}
}

// judge notes how long it has said that nobody serves, in words that keep the contract.
func (l *liar) judge(next []any) {
	for _, one := range next {
		m, ok := one.(*message)
		if !ok || !m.GetSynced() {
			continue
		}
		serving := false
		for _, n := range l.set {
			serving = serving || n.GetState() != inventoryv1.NodeState_NODE_STATE_NOT_READY && allowed(n.GetAddresses()[0])
		}
		switch {
		case serving:
			l.confirms = 0
		case l.confirms == 0:
			l.confirms, l.nobody = 1, time.Now()
		default:
			l.confirms++
		}
		if l.confirms >= 3 && time.Since(l.nobody) >= 8*time.Second {
			l.believed = time.Now()
		}
	}
}

// act is a thing to do. bad is how the writer counts it, with alternatives; empty: it keeps the contract.
type act struct {
	name string
	bad  string
	next func(*liar) []any
}

// lie has the set be another one, and tells it in a message that keeps the contract.
func lie(name string, alter func(*liar)) act {
	return act{name, "", func(l *liar) []any {
		alter(l)
		l.revision++
		if l.rand.IntN(2) == 0 {
			l.number++
		}
		return []any{l.whole()}
	}}
}

// breach tells the set in a message that is spoilt.
func breach(name, kind string, spoil func(*liar, *message)) act {
	return act{name, kind, func(l *liar) []any {
		m := l.whole()
		m.Upserts = nil
		for _, n := range l.set {
			m.Upserts = append(m.Upserts, proto.CloneOf(n))
		}
		if len(m.GetUpserts()) < 2 {
			m.Upserts = append(m.Upserts, aNode("one", "10.0.1.77"), aNode("two", "10.0.1.78"))
			m.Count, m.Digest = uint32(len(m.GetUpserts())), digest(m.GetUpserts())
		}
		m.Cursor.Revision++
		spoil(l, m)
		return []any{m}
	}}
}

// says is messages of other kinds.
func says(name, kind string, what func(*liar) []any) act { return act{name, kind, what} }

func (l *liar) each(alter func(*node)) {
	for i, n := range l.set {
		n = proto.CloneOf(n)
		alter(n)
		l.set[i] = mint(n)
	}
}

func (l *liar) addresses(next func(i int) string) {
	l.set = nil
	for i := range 1 + l.rand.IntN(20) {
		l.set = append(l.set, aNode(fmt.Sprintf("node-%d", i), next(i)))
	}
}

var acts = []act{
	// Within the contract.
	lie("nobody is left", func(l *liar) { l.set = nil }),
	lie("half of them left", func(l *liar) { l.set = append([]*node(nil), l.set[:len(l.set)/2]...) }),
	lie("all but one left", func(l *liar) { l.set = append([]*node(nil), l.set[:min(len(l.set), 1)]...) }),
	lie("all are others", func(l *liar) {
		from := l.rand.IntN(200)
		l.addresses(func(i int) string { return fmt.Sprintf("10.0.1.%d", 1+from+i) })
	}),
	lie("all are outside of the fence", func(l *liar) { l.addresses(func(i int) string { return fmt.Sprintf("10.9.0.%d", 1+i) }) }),
	lie("some are outside of the fence", func(l *liar) {
		l.addresses(func(i int) string { return fmt.Sprintf("10.0.%d.%d", i%3, 1+i) })
	}),
	lie("loopback, link-local, multicast, the Service's own address", func(l *liar) {
		odd := []string{
			"127.0.0.1",
			"169.254.169.254",
			"224.0.0.1",
			"10.0.1.250",
			"255.255.255.255",
			"fe80::1",
			"::1",
			"ff02::1",
			"10.0.1.9",
		}
		l.set = nil
		for i, a := range odd {
			l.set = append(l.set, aNode(fmt.Sprintf("odd-%d", i), a))
		}
	}),
	lie("all are not ready", func(l *liar) {
		l.each(func(n *node) { n.State = inventoryv1.NodeState_NODE_STATE_NOT_READY })
	}),
	lie("all are draining", func(l *liar) { l.each(func(n *node) { n.State = inventoryv1.NodeState_NODE_STATE_DRAINING }) }),
	lie("all are ready", func(l *liar) { l.each(func(n *node) { n.State = inventoryv1.NodeState_NODE_STATE_READY }) }),
	lie("states that nobody knows", func(l *liar) { l.each(func(n *node) { n.State = inventoryv1.NodeState(40 + l.rand.IntN(9)) }) }),
	lie("another epoch", func(l *liar) { l.live() }),
	lie("many observations", func(l *liar) { l.number += 1 << 40 }),
	says("flaps ten times", "", func(l *liar) (all []any) {
		half := append([]*node(nil), l.set[:len(l.set)/2]...)
		for i := range 10 {
			was := l.set
			if i%2 == 0 {
				l.set = half
			}
			l.revision++
			l.number++
			all = append(all, l.whole())
			l.set = was
		}
		l.revision++
		return append(all, l.whole())
	}),
	says("a flood of status", "", func(l *liar) (all []any) {
		for i := range 300 {
			m := &message{Status: fresh(l.number)}
			m.Status.Membership.State = inventoryv1.SyncState(i % 5)
			m.Status.Membership.Reason = strings.Repeat("no", i)
			all = append(all, m)
		}
		return append(all, l.whole())
	}),
	says("resets without an end", "", func(l *liar) (all []any) {
		for range 200 {
			m := l.whole()
			m.Synced, m.Cursor, m.Digest, m.Count = false, nil, nil, 0
			all = append(all, m)
		}
		return all
	}),
	says("names that come and go, never synced", "", func(l *liar) (all []any) {
		all = append(all, &message{Reset_: true, Status: fresh(l.number)})
		for round := range 20 {
			m := &message{Status: fresh(l.number)}
			for i := range 100 {
				if round > 0 {
					m.Removed = append(m.Removed, fmt.Sprintf("n-%d-%d", round-1, i))
				}
				m.Upserts = append(m.Upserts, aNode(fmt.Sprintf("n-%d-%d", round, i), fmt.Sprintf("10.0.1.%d", 1+i)))
			}
			all = append(all, m)
		}
		return all
	}),
	says("absurd durations", "", func(l *liar) []any {
		m := l.whole()
		odd := []*durationpb.Duration{{Seconds: 1 << 62}, {Seconds: -1 << 62}, {Nanos: -1 << 31}, {Seconds: 1, Nanos: 1<<31 - 1}, nil}
		pick := func() *durationpb.Duration { return odd[l.rand.IntN(len(odd))] }
		m.Status.ObservationAge, m.Status.Membership.Age, m.HeartbeatInterval = pick(), pick(), pick()
		m.Upserts = nil
		for _, n := range l.set {
			n = proto.CloneOf(n)
			n.StateAge = pick()
			m.Upserts = append(m.Upserts, n)
		}
		return []any{m}
	}),
	says("fields of a newer dialect", "", func(l *liar) []any {
		m := proto.CloneOf(l.whole())
		m.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 4000, protowire.BytesType), make([]byte, 100<<10)))
		return []any{m}
	}),
	says("silence of 20 s", "", func(*liar) []any { return []any{20 * time.Second} }),
	says("an end", "", func(l *liar) []any {
		return []any{status.Error(codes.Code(1+l.rand.IntN(16)), strings.Repeat("x", 1000))}
	}),

	// Outside of it.
	breach("a wrong digest", "digest", func(_ *liar, m *message) { m.Digest[0] ^= 1 }),
	breach("a short digest", "digest", func(_ *liar, m *message) { m.Digest = m.GetDigest()[:7] }),
	breach("a wrong count", "count", func(_ *liar, m *message) { m.Count += 1 << 31 }),
	breach("a node without a name", "name", func(_ *liar, m *message) { m.Upserts[0].Name = "" }),
	breach("a name without an end", "name", func(_ *liar, m *message) { m.Upserts[0].Name = strings.Repeat("x", 300) }),
	breach("one name twice", "duplicate_name", func(_ *liar, m *message) { m.Upserts = append(m.Upserts, m.GetUpserts()[0]) }),
	breach("one address twice", "duplicate_address",
		func(_ *liar, m *message) { m.Upserts[0].Addresses = m.GetUpserts()[1].GetAddresses() }),
	breach("no address", "address", func(_ *liar, m *message) { m.Upserts[0].Addresses = nil }),
	breach("an address of v4 in the dress of v6", "address",
		func(_ *liar, m *message) { m.Upserts[0].Addresses = []string{"::ffff:10.0.1.3"} }),
	breach("the unspecified address", "address", func(_ *liar, m *message) { m.Upserts[0].Addresses = []string{"0.0.0.0"} }),
	breach("an address with a zone", "address", func(_ *liar, m *message) { m.Upserts[0].Addresses = []string{"fe80::1%eth0"} }),
	breach("an address that is a host name", "address", func(_ *liar, m *message) { m.Upserts[0].Addresses = []string{"localhost"} }),
	breach("two addresses of one family", "address",
		func(_ *liar, m *message) { m.Upserts[0].Addresses = []string{"10.0.1.201", "10.0.1.202"} }),
	breach("three addresses", "limit", func(_ *liar, m *message) { m.Upserts[0].Addresses = []string{"10.0.1.201", "fd00::1", "fd00::2"} }),
	breach("a short fingerprint", "fingerprint", func(_ *liar, m *message) { m.Upserts[0].Fingerprint = []byte{1} }),
	breach("a name removed and upserted", "removed_and_upserted", func(_ *liar, m *message) {
		m.Reset_, m.Removed = false, []string{m.GetUpserts()[0].GetName()}
		m.Upserts = m.GetUpserts()[:1]
	}),
	breach("a removal of nobody", "unknown_removal", func(_ *liar, m *message) { m.Removed = []string{"nobody"} }),
	breach("a revision that goes back", "revision", func(_ *liar, m *message) { m.Cursor.Revision = 0 }),
	breach("an observation that goes back", "observation", func(_ *liar, m *message) { m.Status.Observation = 0 }),
	breach("an epoch without a reset", "epoch", func(_ *liar, m *message) { m.Reset_, m.Upserts, m.Cursor.Epoch = false, nil, "other" }),
	breach("an epoch without an end", "limit", func(_ *liar, m *message) { m.Cursor.Epoch = strings.Repeat("e", 65) }),
	breach("synced without a cursor", "incomplete", func(_ *liar, m *message) { m.Cursor = nil }),
	breach("synced without a status", "incomplete", func(_ *liar, m *message) { m.Status = nil }),
	breach("501 upserts", "limit", func(_ *liar, m *message) {
		for i := range 501 {
			m.Upserts = append(m.Upserts, aNode(fmt.Sprintf("more-%d", i), "10.0.1.1"))
		}
	}),
	breach("501 removals", "limit", func(_ *liar, m *message) { m.Removed = make([]string, 501) }),
	breach("17 ports", "limit", func(_ *liar, m *message) { m.Upserts[0].Ports = make([]*inventoryv1.SourcePort, 17) }),
	breach("a port that is none", "limit", func(_ *liar, m *message) { m.Upserts[0].Ports = []*inventoryv1.SourcePort{{Port: 70000}} }),
	breach("257 labels", "limit", func(_ *liar, m *message) {
		m.Upserts[0].Labels = map[string]string{}
		for i := range 257 {
			m.Upserts[0].Labels[fmt.Sprint(i)] = ""
		}
	}),
	breach("a label without an end", "limit", func(_ *liar, m *message) {
		m.Upserts[0].Labels = map[string]string{"k": strings.Repeat("v", 64)}
	}),
	says("a message above the limit", "limit", func(*liar) []any { return []any{make([]byte, 5<<20)} }),
	says("noise", "-", func(l *liar) []any {
		b := make([]byte, 1+l.rand.IntN(200))
		for i := range b {
			b[i] = byte(l.rand.Uint32())
		}
		return []any{append(binary.AppendUvarint(nil, 3<<3|3), b...)} // the start of a group
	}),
	says("a name that is no UTF-8", "-", func(l *liar) []any {
		inner := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte{0xff, 0xfe})
		return []any{protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), inner)}
	}),
}
