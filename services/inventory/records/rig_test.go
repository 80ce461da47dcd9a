package records

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// entry is a record as a script prints it.
func entry(name, ip string, ready, worker bool) string {
	return fmt.Sprintf(`{"name":%q,"private_ip":%q,"ready":%t,"worker":%t}`, name, ip, ready, worker)
}

func array(entries ...string) string { return "[" + strings.Join(entries, ",\n ") + "]\n" }

var (
	a    = entry("a", "10.0.0.11", true, true)
	b    = entry("b", "10.0.0.12", true, true)
	good = array(a, b)
)

// saysGood is what the feed says of it.
const saysGood = "synced: a ready 10.0.0.11, b ready 10.0.0.12"

// feed is a source and the roster that hears it.
type feed struct {
	source *Source
	roster *roster.Roster
}

func newFeed(r Reader) *feed {
	return &feed{
		source: New(Config{Reader: r, Name: "the test", Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}),
		roster: roster.New(roster.Config{Resolver: roster.ByRecord, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}}),
	}
}

// look does what the inventory does when the roster wants a look.
func (f *feed) look(ctx context.Context) error {
	began := time.Now()
	mark, err := f.source.Look(ctx, roster.Full)
	f.roster.Hear(time.Now(), f.source.Take())
	f.roster.Looked(time.Now(), began, roster.Full, mark, err)
	return err
}

func (f *feed) membership() roster.Part { return f.roster.Status(time.Now()).Membership }

// says is what the feed tells of membership and nodes, in a line.
func (f *feed) says() string {
	var told []string
	for _, n := range f.roster.Nodes() {
		told = append(told, fmt.Sprintf("%s %s %s", n.Name, n.State, n.Addresses[0]))
	}
	for _, o := range f.roster.Omitted() {
		told = append(told, fmt.Sprintf("%s left out (%s)", o.Name, o.Reason))
	}
	return f.membership().Sync.String() + ": " + strings.Join(told, ", ")
}

// fake reads what it is set to, and can be told that something changed.
type fake struct {
	read  func(context.Context) ([]byte, error)
	watch func(ctx context.Context, changed func()) error
}

func (f *fake) Read(ctx context.Context) ([]byte, error)        { return f.read(ctx) }
func (f *fake) Watch(ctx context.Context, changed func()) error { return f.watch(ctx, changed) }

// badInput is one way in which a source goes wrong after it was well, and what the feed says then.
type badInput struct {
	title  string
	text   string // what it reads then, unless it is spoiled otherwise
	says   string
	reason string // part of the status' reason
}

// stays is what the feed says as long as nothing can be used.
const stays = "degraded: a ready 10.0.0.11, b ready 10.0.0.12"

// badTexts are the ways in which the text can be bad, whatever it is read from.
var badTexts = []badInput{
	{"nothing at all", "", stays, "it is empty"},
	{"half of the JSON", good[:len(good)-20], stays, "it ends in the midst, after 1 whole records"},
	{"no JSON", "Traceback (most recent call last):\n", stays, "it is no JSON array of records"},
	{"an error in place of the array", `{"error":"unauthorized"}`, stays, "it is no JSON array of records"},
	{"something after the array", good + good, stays, "something follows the end"},
	{"more than 16 MiB", "[" + strings.Repeat(" ", MaxBytes), stays, "16 MiB"},
	{"two records of one name", array(a, b, entry("a", "10.0.0.13", true, true)), stays, `two records have the name "a"`},
	{"two records of one address", array(a, entry("b", "::ffff:10.0.0.11", true, true)), stays, `the records of "a" and "b" have the same address 10.0.0.11`},
	{
		"a known node's record lacks a field", array(a, `{"name":"b","private_ip":"10.0.0.12","worker":true}`),
		stays, `1 of 2 records of the test cannot be used, the first: "b": ready is absent`,
	},
	{
		"a known node's address is no address", array(a, entry("b", "10.0.0.300", true, true)),
		stays, `"b": private_ip is "10.0.0.300", which is no IP address`,
	},
	{
		"a new node's record cannot be used", array(a, b, entry("c", "127.0.0.1", true, true)),
		stays + ", c left out (invalid_record)", `"c": private_ip is 127.0.0.1, which no node can be reached at`,
	},
	{
		"a record without a name", array(a, `{"private_ip":"10.0.0.12","ready":true,"worker":true}`),
		stays, "name is absent; 1 nodes without a record are kept, since 1 records have no readable name",
	},
	{"an empty array", "[]", "synced: ", ""},
	{"a node is no worker any more", array(a, entry("b", "10.0.0.12", true, false)), "synced: a ready 10.0.0.11, b left out (control_plane)", ""},
}

// try runs the ways in which a source can go wrong, each from a source that is well and back to it.
func try(t *testing.T, rows []badInput, read func(*testing.T) Reader, set func(t *testing.T, title, text string), spoil map[string]func(*testing.T, *feed) error) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.title, func(t *testing.T) {
			f := newFeed(read(t))
			set(t, "", good)
			if err := f.look(t.Context()); err != nil || f.says() != saysGood {
				t.Fatalf("before: %v, %s", err, f.says())
			}
			if s := spoil[row.title]; s != nil {
				s(t, f)
			} else {
				set(t, row.title, row.text)
				f.look(t.Context())
			}
			if got := f.says(); got != row.says || !strings.Contains(f.membership().Reason, row.reason) {
				t.Errorf("got  %s (%s)\nwant %s (%s)", got, f.membership().Reason, row.says, row.reason)
			}
			set(t, "", good)
			if err := f.look(t.Context()); err != nil || f.says() != saysGood {
				t.Errorf("afterwards: %v, %s", err, f.says())
			}
		})
	}
}

// documented compares the rows with those of the documentation's table.
func documented(t *testing.T, kind string, titles []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/sources/" + kind + ".md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## Bad input")
	var rows []string
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			rows = append(rows, strings.TrimSpace(cells[1]))
		}
	}
	if d := cmp.Diff(titles, rows[min(2, len(rows)):]); d != "" {
		t.Errorf("the table in docs/sources/%s.md has other rows (-test +docs):\n%s", kind, d)
	}
}
