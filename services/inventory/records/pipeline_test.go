package records

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/slicefeed/slicefeed/services/inventory/roster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recordJSON returns a record as a script prints it.
func recordJSON(name, ip string, ready, worker bool) string {
	return fmt.Sprintf(`{"name":%q,"private_ip":%q,"ready":%t,"worker":%t}`, name, ip, ready, worker)
}

func arrayJSON(entries ...string) string { return "[" + strings.Join(entries, ",\n ") + "]\n" }

var (
	recordA   = recordJSON("a", "10.0.0.11", true, true)
	recordB   = recordJSON("b", "10.0.0.12", true, true)
	validJSON = arrayJSON(recordA, recordB)
)

// syncedSet is the summary after reading validJSON.
const syncedSet = "synced: a ready 10.0.0.11, b ready 10.0.0.12"

// testPipeline is a source and the roster that ingests its updates.
type testPipeline struct {
	source *Source
	roster *roster.Roster
}

func newTestPipeline(r Reader) *testPipeline {
	return &testPipeline{
		source: New(Config{Reader: r, Name: "the test", Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}),
		roster: roster.New(
			roster.Config{
				Method: roster.ByRecord,
				CIDRs:  []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")},
			},
		),
	}
}

// verify does what the inventory does when the roster requests a verification.
func (f *testPipeline) verify(ctx context.Context) error {
	startedAt := time.Now()
	number, err := f.source.Verify(ctx, roster.FullVerification)
	f.roster.Apply(time.Now(), roster.Input{Source: f.source.Take(), Verification: &roster.VerificationResult{
		StartedAt: startedAt, Mode: roster.FullVerification, Number: number, Err: err,
	}})
	return err
}

func (f *testPipeline) membership() roster.PartStatus { return f.roster.Status(time.Now()).Membership }

// summary returns membership and nodes in one line.
func (f *testPipeline) summary() string {
	var nodes []string
	for _, m := range f.roster.Members(roster.Filter{}) {
		if m.IsPublished() {
			nodes = append(nodes, fmt.Sprintf("%s %s %s", m.Name, m.State, m.Addresses[0]))
		} else {
			nodes = append(nodes, fmt.Sprintf("%s omitted (%s)", m.Name, m.Omission.Reason))
		}
	}
	slices.Sort(nodes)
	return f.membership().Sync.String() + ": " + strings.Join(nodes, ", ")
}

// fakeReader calls its functions.
type fakeReader struct {
	read  func(context.Context) ([]byte, error)
	watch func(ctx context.Context, changed func()) error
}

func (f *fakeReader) Read(ctx context.Context) ([]byte, error)        { return f.read(ctx) }
func (f *fakeReader) Watch(ctx context.Context, changed func()) error { return f.watch(ctx, changed) }

// badInput is a fault of a source that worked before, and the resulting summary.
type badInput struct {
	title  string
	text   string // the input, unless runBadInput has another fault for it
	want   string
	reason string // substring of the reason in the status
}

// degradedSet is the summary after validJSON was read and later reads fail.
const degradedSet = "degraded: a ready 10.0.0.11, b ready 10.0.0.12"

// badTexts are the faults of the text, for every kind of reader.
var badTexts = []badInput{
	{"empty input", "", degradedSet, "empty; want"},
	{"truncated JSON", validJSON[:len(validJSON)-20], degradedSet, "truncated after 1 record"},
	{"not JSON", "Traceback (most recent call last):\n", degradedSet, "not a JSON array of records"},
	{"an error instead of the array", `{"error":"unauthorized"}`, degradedSet, "not a JSON array of records"},
	{"trailing data after the array", validJSON + validJSON, degradedSet, "trailing data after JSON array"},
	{"more than 16 MiB", "[" + strings.Repeat(" ", MaxBytes), degradedSet, "16 MiB"},
	{
		"two records of one name",
		arrayJSON(recordA, recordB, recordJSON("a", "10.0.0.13", true, true)),
		degradedSet,
		`two records have the name "a"`,
	},
	{
		"two records of one address",
		arrayJSON(recordA, recordJSON("b", "::ffff:10.0.0.11", true, true)),
		degradedSet,
		`the records of "a" and "b" have the same address 10.0.0.11`,
	},
	{
		"a known node's record lacks a field", arrayJSON(recordA, `{"name":"b","private_ip":"10.0.0.12","worker":true}`),
		degradedSet, `invalid records of the test: 1 of 2, the first: "b": ready is missing`,
	},
	{
		"a known node's address is invalid", arrayJSON(recordA, recordJSON("b", "10.0.0.300", true, true)),
		degradedSet, `"b": private_ip is "10.0.0.300", want an IP address`,
	},
	{
		"a new node's record is invalid", arrayJSON(recordA, recordB, recordJSON("c", "127.0.0.1", true, true)),
		degradedSet + ", c omitted (InvalidRecord)", `"c": private_ip is 127.0.0.1, want an address that other hosts can reach`,
	},
	{
		"a record without a name", arrayJSON(recordA, `{"private_ip":"10.0.0.12","ready":true,"worker":true}`),
		degradedSet, "name is missing; 1 node without a record is kept because 1 record has no valid name",
	},
	{"an empty array", "[]", "synced: ", ""},
	{
		"a node is no longer a worker",
		arrayJSON(recordA, recordJSON("b", "10.0.0.12", true, false)),
		"synced: a ready 10.0.0.11, b omitted (ControlPlane)",
		"",
	},
}

// runBadInput tests each fault on a working source, and that the source works again afterwards.
// inject has the faults that are not a text, by title.
func runBadInput(
	t *testing.T,
	rows []badInput,
	read func(*testing.T) Reader,
	set func(t *testing.T, title, text string),
	inject map[string]func(*testing.T, *testPipeline) error,
) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.title, func(t *testing.T) {
			f := newTestPipeline(read(t))
			set(t, "", validJSON)
			if err := f.verify(t.Context()); err != nil || f.summary() != syncedSet {
				t.Fatalf("before: %v, %s", err, f.summary())
			}
			if fault := inject[row.title]; fault != nil {
				fault(t, f)
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
