package people

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
	"github.com/slicefeed/slicefeed/lab/process"
)

// Who asks a writer, and by what name it answers.
const (
	proxySAN  = "spiffe://lab.example/edge-proxy"
	personSAN = "alice.lab.example"
	doorName  = "writer.lab.example"
	doorPort  = 9444
)

const welcome = "clients:\n- san: " + proxySAN + "\n  role: subscriber\n- san: " + personSAN + "\n  role: operator\n"

// doors are the listeners of writers: certificates of one authority, clients of another, and
// neither is one of the link's.
type doors struct {
	theirs, clients *pki.CA
	dir, list       string
}

func doorAt(writer *pair.Component) string {
	return netip.AddrPortFrom(writer.Address, doorPort).String()
}

// open has writers listen from their next start on.
func open(s *e2e.Setup, writers ...*pair.Component) *doors {
	s.T.Helper()
	d := &doors{dir: s.T.TempDir()}
	var err error
	d.theirs, err = pki.NewCA("writer's listener")
	s.Must(err)
	d.clients, err = pki.NewCA("those who ask")
	s.Must(err)
	_, err = d.theirs.Write(d.dir, "door-ca")
	s.Must(err)
	clientCA, err := d.clients.Write(d.dir, "client-ca")
	s.Must(err)
	d.list = filepath.Join(d.dir, "clients.yaml")
	s.WriteFile(d.list, welcome)
	for _, writer := range writers {
		own := d.sub(s, writer.Name)
		s.Issue(d.theirs, own, pki.Cert{DNS: []string{doorName}, IPs: []netip.Addr{writer.Address}, Usage: pki.Server})
		s.With(writer, map[string]string{
			"LISTEN_ADDRESS": doorAt(writer), "LISTEN_CERT_FILE": own + "/tls.crt", "LISTEN_KEY_FILE": own + "/tls.key",
			"CLIENT_CA_FILE": clientCA, "ALLOWED_CLIENTS_FILE": d.list,
		})
	}
	s.Issue(d.clients, d.sub(s, proxySAN), pki.Cert{URIs: []string{proxySAN}, Usage: pki.Client})
	s.Issue(d.clients, d.sub(s, personSAN), pki.Cert{DNS: []string{personSAN}, Usage: pki.Client})
	return d
}

// sub is the directory with what somebody has.
func (d *doors) sub(s *e2e.Setup, name string) string {
	s.T.Helper()
	dir := filepath.Join(d.dir, filepath.Base(name))
	s.Must(os.MkdirAll(dir, 0o700))
	return dir
}

// dial connects to a writer's listener with the certificate and key of a directory.
func (d *doors) dial(s *e2e.Setup, own string, writer *pair.Component) *grpc.ClientConn {
	s.T.Helper()
	at := netip.AddrPortFrom(writer.Address, doorPort)
	conn, err := pair.Dial(at, doorName, own+"/tls.crt", own+"/tls.key", d.dir+"/door-ca.crt")
	s.Must(err)
	return conn
}

// ask returns what a writer answers somebody, as JSON; or the status of its refusal.
func ask[M proto.Message](s *e2e.Setup, conn *grpc.ClientConn, call func(context.Context, *grpc.ClientConn) (M, error)) string {
	defer conn.Close()
	ctx, cancel := context.WithTimeout(s.Ctx(), 5*time.Second)
	defer cancel()
	answer, err := call(ctx, conn)
	if err != nil {
		return status.Convert(err).String()
	}
	return protojson.Format(answer)
}

func (d *doors) report(s *e2e.Setup, own string, writer *pair.Component, filter string) string {
	s.T.Helper()
	return ask(s, d.dial(s, own, writer), func(ctx context.Context, conn *grpc.ClientConn) (*writerv1.WriterReport, error) {
		return writerv1.NewWriterReportServiceClient(conn).GetReport(ctx, &reportv1.GetReportRequest{Filter: filter})
	})
}

// reports waits until the report of a writer to somebody says all this in this order.
func (d *doors) reports(s *e2e.Setup, writer *pair.Component, who, filter string, parts ...string) {
	s.T.Helper()
	d.says(s, func() string { return d.report(s, d.sub(s, who), writer, filter) }, who+" reads of "+filter, parts)
}

// lists waits until a writer's list of targets for somebody says all this in this order.
func (d *doors) lists(s *e2e.Setup, writer *pair.Component, who, service string, parts ...string) {
	s.T.Helper()
	d.says(s, func() string {
		return ask(
			s,
			d.dial(s, d.sub(s, who), writer),
			func(ctx context.Context, conn *grpc.ClientConn) (*writerv1.ListTargetsResponse, error) {
				return writerv1.NewWriterServiceClient(conn).ListTargets(ctx, &writerv1.ListTargetsRequest{
					Services: []*writerv1.ServiceSelector{{Namespace: pair.Namespace, Service: service}},
				})
			},
		)
	}, who+" lists "+service, parts)
}

func (d *doors) says(s *e2e.Setup, answer func() string, what string, parts []string) {
	s.T.Helper()
	text := ""
	defer func() { s.T.Logf("%s: want %q:\n%s", what, parts, text) }()
	s.UntilCalled(what, func() bool {
		text = answer()
		return e2e.InOrder(text, parts...)
	})
}

const (
	resetsTold  = `slicefeed_writer_stream_messages_total{kind="reset"}`
	statusTold  = `slicefeed_writer_stream_messages_total{kind="status"}`
	deltasTold  = `slicefeed_writer_stream_messages_total{kind="delta"}`
	subscribers = `slicefeed_writer_subscribers`
)

func TestAProxyFollowsAWriterThroughDrainsDeathsAndItsRestart(t *testing.T) {
	s := e2e.New(t, e2e.Options{Writers: 2})
	d := open(s, s.Replicas()...)
	s.StartAll()
	all := s.Join(3)
	leader, standby := s.Writers[0], s.Writers[1]
	ofLeader, ofStandby := d.edge(s, leader, "127.0.0.1:8001"), d.edge(s, standby, "127.0.0.1:8002")
	both := []*edge{ofLeader, ofStandby}
	programmed := func(s *e2e.Setup, workers ...*pair.Worker) (at time.Time) {
		s.T.Helper()
		for _, e := range both {
			at = e.programmed(s, workers...)
		}
		return at
	}
	programmed(s, all...)
	d.reports(s, leader, personSAN, "web/shop", `"leading": true`, `"ready": 3`)
	d.reports(s, standby, personSAN, "web/shop", `"leading": false`, `"ready": 3`)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var passing sync.WaitGroup
	for _, e := range both {
		passing.Go(func() { e.pass(ctx, 20*time.Millisecond) })
	}
	var unheard, dying []span

	s.Step("a worker that drains gets nothing new, may die unnoticed, and comes back", func(s *e2e.Setup) {
		s.Must(all[0].Drain(s.Ctx(), true))
		quiet := span{worker: all[0].Name, from: programmed(s, all[1:]...)}
		dying = append(dying, span{from: quiet.from, to: quiet.from}) // with what was under way at that moment
		s.Must(all[0].Set(backend.Refuse))
		s.Await("it is out", pair.Are(pair.Out, all[0].Address))
		s.Must(all[0].Set(backend.Serve))
		s.Await("it drains again", pair.Are(pair.Draining, all[0].Address))
		quiet.to = time.Now()
		unheard = append(unheard, quiet)
		s.Must(all[0].Drain(s.Ctx(), false))
		programmed(s, all...)
	})
	s.Step("a worker that dies is taken out, and comes back", func(s *e2e.Setup) {
		death := span{from: time.Now()}
		s.Must(all[1].Set(backend.Refuse))
		death.to = time.Now()
		dying = append(dying, death)
		programmed(s, all[0], all[2])
		s.Must(all[1].Set(backend.Serve))
		programmed(s, all...)
	})
	s.Step("while the leader is dead its proxy keeps what it has, and the standby tells what nobody writes yet", func(s *e2e.Setup) {
		dead := s.Leader()
		times := len(ofLeader.programs(s))
		s.Must(leader.Kill())
		s.Must(all[2].Drain(s.Ctx(), true))
		ofStandby.programmed(s, all[:2]...)
		if is := pair.Conditions(s.Now())[all[2].Address]; is != pair.Ready && s.Leader() == dead {
			s.T.Errorf("it is %q in the slices, though nobody leads", is)
		}
		s.Must(all[2].Drain(s.Ctx(), false))
		ofStandby.programmed(s, all...)
		if n := len(ofLeader.programs(s)); n != times {
			s.T.Errorf("the dead leader's proxy was programmed %d times meanwhile", n-times)
		}
	})
	s.Step("the one that comes back resumes its proxy by the digest, and leads it on", func(s *e2e.Setup) {
		times := len(ofLeader.programs(s))
		s.Must(leader.Start(s.Ctx()))
		// It has decided, so whoever follows it now is told at once where it stands.
		d.reports(s, leader, personSAN, "web/shop/"+all[2].Address.String(), `"wanted": {`, `"ready": true`)
		s.AwaitMetric(leader, subscribers, e2e.Equals(1))
		s.AwaitMetric(leader, statusTold, e2e.AtLeast(1))
		s.Must(all[2].Drain(s.Ctx(), true))
		quiet := span{worker: all[2].Name, from: programmed(s, all[:2]...)}
		s.AwaitMetric(leader, resetsTold, e2e.Equals(0))
		s.AwaitMetric(leader, deltasTold, e2e.AtLeast(1))
		if n := len(ofLeader.programs(s)); n != times+1 {
			s.T.Errorf("it was programmed %d times, want once: for what changed since", n-times)
		}
		s.Await("whoever leads writes it", pair.Are(pair.Draining, all[2].Address))
		quiet.to = time.Now()
		unheard = append(unheard, quiet)
	})
	stop()
	passing.Wait()
	for _, e := range both {
		e.judge(t, unheard, dying)
	}
}

func TestAWriterReportsToThoseOnItsListWhatItListsAndWhy(t *testing.T) {
	// So long is the window of a new leader in which nobody leaves on the feed's word.
	s := e2e.New(t, e2e.Options{Writers: 2, Writer: map[string]string{"SHRINK_WINDOW": "2m"}})
	writer, without := s.Writers[0], s.Writers[1]
	d := open(s, writer)
	s.StartAll()
	all := s.Join(3)
	leaving, dead := all[0].Address.String(), all[1]
	s.Must(all[0].Drain(s.Ctx(), true))
	s.Must(dead.Set(backend.Refuse))
	s.Await("the dead one is out", pair.Are(pair.Out, dead.Address))
	const shop = pair.Namespace + "/shop"
	listed := func(state string) []string { // the address that leaves, in the report of the Service
		return []string{`"address": "` + leaving + `"`, `"now": {`, state}
	}
	const isReady, isDraining = `"ready": true, "serving": true, "source"`, `"serving": true, "terminating": true`

	s.Step("a writer without LISTEN_ADDRESS listens nowhere else", func(s *e2e.Setup) {
		for half, want := range map[*pair.Component][]int{writer: {6060, 8080, doorPort}, without: {6060, 8080}} {
			if got := ports(s, half.PID()); !slices.Equal(got, want) {
				s.T.Errorf("%s listens at %v, want %v", half.Name, got, want)
			}
		}
		s.Must(without.Kill()) // it would lead when the other one is restarted
	})
	s.Step("an operator reads what is listed, what is held back and until when", func(s *e2e.Setup) {
		d.reports(s, writer, personSAN, shop, `"LEVEL_WARNING", "reason": "ShrinkLimited"`, `"leading": true`,
			`"state": "TARGET_STATE_MANAGED"`, `"ready": 2, "draining": 0, "notReady": 1, "outOfSync": 0, "held": 1`, `"nextDecisionIn":`)
		d.reports(s, writer, personSAN, shop+"/"+leaving, `"reason": "ShrinkLimited"`, `"address": "`+leaving+`"`,
			`"message": "Source default takes out`, `"rule": "shrink", "reason": "source default: DRAINING, probe: passing"`,
			`"node": "`+all[0].Name+`", "state": "DRAINING"`, `"result": "passing"`, `"now": {`, isReady, `"wanted": {`, isReady)
		d.reports(s, writer, personSAN, shop+"/"+dead.Name, `"reason": "ProbeFailing"`, `"Its probe fails: `, `"rule": "table"`,
			`"state": "READY"`, `"result": "failing"`, `"detail":`, `"passedAge":`)
		d.reports(s, writer, personSAN, shop+"/10.0.1.9", `"reason": "NotReported"`)
		d.reports(s, writer, personSAN, shop+"x", `"reason": "NoServices"`)
	})
	s.Step("a subscriber lists, and does not read why", func(s *e2e.Setup) {
		d.lists(s, writer, proxySAN, "shop", `"held": 1`, `"ready": 2`)
		d.reports(s, writer, proxySAN, shop, "PermissionDenied", "role operator")
	})
	const stranger = "spiffe://lab.example/stranger"
	s.Step("strangers get no answer", func(s *e2e.Setup) {
		s.Issue(d.clients, d.sub(s, "stranger"), pki.Cert{URIs: []string{stranger}, Usage: pki.Client})
		s.Issue(d.theirs, d.sub(s, "impostor"), pki.Cert{DNS: []string{personSAN}, Usage: pki.Client})
		d.lists(s, writer, "stranger", "shop", "Unavailable")
		d.lists(s, writer, "impostor", "shop", "Unavailable")
		if text := d.report(s, writer.Dir(), writer, shop); !strings.Contains(text, "Unavailable") {
			s.T.Errorf("with the link's own certificate: %s", text)
		}
	})
	s.Step("grpcurl sees the service and asks it all", func(s *e2e.Setup) { d.grpcurl(s, writer, leaving) })

	s.Step("a source that is cut off is reported as such, and what it said stays", func(s *e2e.Setup) {
		s.Must(s.Inventory.Kill())
		d.reports(
			s,
			writer,
			personSAN,
			shop,
			append([]string{`"reason": "SourceNotTrusted"`, `"reason": "SourceDisconnected"`}, listed(isReady)...)...)
		s.Restart(writer)
		_, err := s.WaitLeading(s.Ctx())
		s.Must(err)
		d.reports(s, writer, personSAN, shop, append([]string{`"reason": "SourceNotSynced"`}, listed(isReady)...)...)
	})
	s.Step("a Service that is paused is reported as its slices are", func(s *e2e.Setup) {
		s.PatchService(s.Service, `{"metadata":{"annotations":{"slicefeed.dev/paused":"true"}}}`)
		d.reports(s, writer, personSAN, shop, append([]string{`"reason": "Paused"`, `"TARGET_STATE_PAUSED"`}, listed(isReady)...)...)
		slice := s.Slice()
		for i := range slice.Endpoints {
			if slice.Endpoints[i].Addresses[0] == leaving {
				slice.Endpoints[i].Conditions.Ready, slice.Endpoints[i].Conditions.Terminating = new(false), new(true)
			}
		}
		s.UpdateSlice(slice)
		d.reports(s, writer, personSAN, shop, append([]string{`"TARGET_STATE_PAUSED"`}, listed(isDraining)...)...)
	})
	s.Step("so is one that is rejected", func(s *e2e.Setup) {
		s.PatchService(s.Service, `{"metadata":{"annotations":{"slicefeed.dev/paused":null}},"spec":{"selector":{"app":"shop"}}}`)
		d.reports(s, writer, personSAN, shop,
			append([]string{`"LEVEL_ERROR", "reason": "ServiceHasSelector"`, `"TARGET_STATE_REJECTED"`}, listed(isDraining)...)...)
	})
	s.Step("the list is read again", func(s *e2e.Setup) {
		s.WriteFile(d.list, welcome+"- {san: "+stranger+", role: subscriber}\n")
		d.lists(s, writer, "stranger", "shop", `"ServiceHasSelector"`)
	})
}

// grpcurl asks what docs/use/writer-api.md asks by it.
func (d *doors) grpcurl(s *e2e.Setup, writer *pair.Component, address string) {
	root, err := pair.Root()
	s.Must(err)
	program := filepath.Join(root, ".bin", "grpcurl")
	if _, err := os.Stat(program); err != nil {
		s.T.Fatal("make tools builds grpcurl: ", err)
	}
	own := d.sub(s, personSAN)
	const service, reports = "slicefeed.writer.v1.WriterService", "slicefeed.writer.v1.WriterReportService"
	for _, one := range []struct{ request, method, says string }{
		{"", "list", service},
		{"", service + "/ListTargets", `"TARGET_STATE_MANAGED"`},
		{`{"services":[{"namespace":"web"}]}`, service + "/WatchEndpoints", `"synced": true`},
		{`{"services":[{"namespace":"web","service":"shop"}],"groupByPort":true}`, service + "/WatchEndpoints", `"synced": true`},
		{`{"filter":"web/shop/` + address + `"}`, reports + "/GetReport", `"rule": "shrink"`},
	} {
		args := []string{"-cert", own + "/tls.crt", "-key", own + "/tls.key", "-cacert", d.dir + "/door-ca.crt"}
		if one.request != "" {
			args = append(args, "-d", one.request)
		}
		asked, err := process.Start(process.Spec{
			Name: "grpcurl",
			Path: program,
			Args: append(args, doorAt(writer), one.method),
			Log:  filepath.Join(s.T.TempDir(), "grpcurl.log"),
		})
		s.Must(err)
		s.Until(one.method+" says "+one.says, func() bool {
			text, err := os.ReadFile(asked.Log())
			return err == nil && strings.Contains(string(text), one.says)
		})
		s.Must(asked.Stop(5 * time.Second)) // a stream has no end of its own
	}
}

// ports are those at which a process has sockets that listen, sorted.
func ports(s *e2e.Setup, pid int) []int {
	s.T.Helper()
	const listening = "0A"
	var all []int
	for _, socket := range s.Sockets(pid, listening) {
		all = append(all, socket.Local)
	}
	slices.Sort(all)
	return all
}
