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

// recordJSON is a record as a script prints it.
func recordJSON(name, ip string, ready, worker bool) string {
	return fmt.Sprintf(`{"name":%q,"private_ip":%q,"ready":%t,"worker":%t}`, name, ip, ready, worker)
}

func arrayJSON(entries ...string) string { return "[" + strings.Join(entries, ",\n ") + "]\n" }

var (
	recordA   = recordJSON("a", "10.0.0.11", true, true)
	recordB   = recordJSON("b", "10.0.0.12", true, true)
	validJSON = arrayJSON(recordA, recordB)
)

// syncedSet is what the feed says of it.
const syncedSet = "synced: a ready 10.0.0.11, b ready 10.0.0.12"

// testFeed is a source and the roster that hears it.
type testFeed struct {
	source *Source
	roster *roster.Roster
}

func newTestFeed(r Reader) *testFeed {
	return &testFeed{
		source: New(Config{Reader: r, Name: "the test", Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}),
		roster: roster.New(roster.Config{Resolver: roster.ByRecord, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}}),
	}
}

// verify does what the inventory does when the roster wants a look.
func (f *testFeed) verify(ctx context.Context) error {
	began := time.Now()
	mark, err := f.source.Verify(ctx, roster.Full)
	f.roster.Hear(time.Now(), f.source.Take())
	f.roster.Looked(time.Now(), began, roster.Full, mark, err)
	return err
}

func (f *testFeed) membership() roster.Part { return f.roster.Status(time.Now()).Membership }

// summary is what the feed tells of membership and nodes, in a line.
func (f *testFeed) summary() string {
	var told []string
	for _, n := range f.roster.Nodes() {
		told = append(told, fmt.Sprintf("%s %s %s", n.Name, n.State, n.Addresses[0]))
	}
	for _, o := range f.roster.Omitted() {
		told = append(told, fmt.Sprintf("%s left out (%s)", o.Name, o.Reason))
	}
	return f.membership().Sync.String() + ": " + strings.Join(told, ", ")
}

// fakeReader reads what it is set to, and can be told that something changed.
type fakeReader struct {
	read  func(context.Context) ([]byte, error)
	watch func(ctx context.Context, changed func()) error
}

func (f *fakeReader) Read(ctx context.Context) ([]byte, error)        { return f.read(ctx) }
func (f *fakeReader) Watch(ctx context.Context, changed func()) error { return f.watch(ctx, changed) }

// badInput is one way in which a source goes wrong after it was well, and what the feed says then.
type badInput struct {
	title  string
	text   string // what it reads then, unless it is spoiled otherwise
	want   string
	reason string // part of the status' reason
}

// degradedSet is what the feed says as long as nothing can be used.
const degradedSet = "degraded: a ready 10.0.0.11, b ready 10.0.0.12"

// badTexts are the ways in which the text can be bad, whatever it is read from.
var badTexts = []badInput{
	{"nothing at all", "", degradedSet, "it is empty"},
	{"half of the JSON", validJSON[:len(validJSON)-20], degradedSet, "it ends in the midst, after 1 whole records"},
	{"no JSON", "Traceback (most recent call last):\n", degradedSet, "it is no JSON array of records"},
	{"an error in place of the array", `{"error":"unauthorized"}`, degradedSet, "it is no JSON array of records"},
	{"something after the array", validJSON + validJSON, degradedSet, "something follows the end"},
	{"more than 16 MiB", "[" + strings.Repeat(" ", MaxBytes), degradedSet, "16 MiB"},
	{"two records of one name", arrayJSON(recordA, recordB, recordJSON("a", "10.0.0.13", true, true)), degradedSet, `two records have the name "a"`},
	{"two records of one address", arrayJSON(recordA, recordJSON("b", "::ffff:10.0.0.11", true, true)), degradedSet, `the records of "a" and "b" have the same address 10.0.0.11`},
	{
		"a known node's record lacks a field", arrayJSON(recordA, `{"name":"b","private_ip":"10.0.0.12","worker":true}`),
		degradedSet, `1 of 2 records of the test cannot be used, the first: "b": ready is absent`,
	},
	{
		"a known node's address is no address", arrayJSON(recordA, recordJSON("b", "10.0.0.300", true, true)),
		degradedSet, `"b": private_ip is "10.0.0.300", which is no IP address`,
	},
	{
		"a new node's record cannot be used", arrayJSON(recordA, recordB, recordJSON("c", "127.0.0.1", true, true)),
		degradedSet + ", c left out (invalid_record)", `"c": private_ip is 127.0.0.1, which no node can be reached at`,
	},
	{
		"a record without a name", arrayJSON(recordA, `{"private_ip":"10.0.0.12","ready":true,"worker":true}`),
		degradedSet, "name is absent; 1 nodes without a record are kept, since 1 records have no readable name",
	},
	{"an empty array", "[]", "synced: ", ""},
	{"a node is no worker any more", arrayJSON(recordA, recordJSON("b", "10.0.0.12", true, false)), "synced: a ready 10.0.0.11, b left out (control_plane)", ""},
}

// runBadInput runs the ways in which a source can go wrong, each from a source that is well and back to it.
func runBadInput(t *testing.T, rows []badInput, read func(*testing.T) Reader, set func(t *testing.T, title, text string), spoil map[string]func(*testing.T, *testFeed) error) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.title, func(t *testing.T) {
			f := newTestFeed(read(t))
			set(t, "", validJSON)
			if err := f.verify(t.Context()); err != nil || f.summary() != syncedSet {
				t.Fatalf("before: %v, %s", err, f.summary())
			}
			if s := spoil[row.title]; s != nil {
				s(t, f)
			} else {
				set(t, row.title, row.text)
				f.verify(t.Context())
			}
			if got := f.summary(); got != row.want || !strings.Contains(f.membership().Reason, row.reason) {
				t.Errorf("got  %s (%s)\nwant %s (%s)", got, f.membership().Reason, row.want, row.reason)
			}
			set(t, "", validJSON)
			if err := f.verify(t.Context()); err != nil || f.summary() != syncedSet {
				t.Errorf("afterwards: %v, %s", err, f.summary())
			}
		})
	}
}

// checkDocumented compares the rows with those of the documentation's table.
func checkDocumented(t *testing.T, kind string, titles []string) {
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
