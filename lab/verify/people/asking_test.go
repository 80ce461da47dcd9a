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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// asking are the settings of a command that asks a writer, with certificate and key of a directory.
func (d *doors) asking(own string, writer *pair.Component) []string {
	return []string{
		"WRITER_ADDRESS=" + doorAt(writer), "WRITER_SAN=" + doorName, "WRITER_CA_FILE=" + d.dir + "/door-ca.crt",
		"CLIENT_CERT_FILE=" + own + "/tls.crt", "CLIENT_KEY_FILE=" + own + "/tls.key",
	}
}

// answers waits until the command ends with a code and says all this in this order.
func (d *doors) answers(s *e2e.Setup, writer *pair.Component, who string, code int, args []string, parts ...string) {
	s.T.Helper()
	env := d.asking(d.sub(s, who), writer)
	var got int
	var text string
	defer func() {
		s.T.Logf("%s: exit code %d, want %d and %q:\n%s", strings.Join(args, " "), got, code, parts, text)
	}()
	s.UntilCalled(strings.Join(args, " ")+" answers "+who+" as it is to", func() bool {
		got, text = e2e.Run(s.T, "slicefeed-writer", env, args...)
		return got == code && e2e.InOrder(text, parts...)
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
	d.answers(s, leader, personSAN, 0, []string{"endpoints", "web/shop"}, "as seen by the leader", "3 ready")
	d.answers(s, standby, personSAN, 0, []string{"endpoints", "web/shop"}, "as seen by a standby", "3 ready")
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
		d.answers(s, leader, personSAN, 0, []string{"explain", "web/shop", all[2].Address.String()}, "desired: ready")
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

func TestAWriterSaysToThoseOnItsListWhatItListsAndWhy(t *testing.T) {
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
	list, explain := []string{"endpoints", "web/shop"}, func(address string) []string { return []string{"explain", "web/shop", address} }
	table := "ADDRESS STATE ZONE SOURCE " + leaving + " ready default " + dead.Address.String() + " not ready default " + all[2].Address.String() + " ready default"

	s.Step("a writer without LISTEN_ADDRESS listens nowhere else", func(s *e2e.Setup) {
		for half, want := range map[*pair.Component][]int{writer: {6060, 8080, doorPort}, without: {6060, 8080}} {
			if got := ports(s, half.PID()); !slices.Equal(got, want) {
				s.T.Errorf("%s listens at %v, want %v", half.Name, got, want)
			}
		}
		s.Must(without.Kill()) // it would lead when the other one is restarted
	})
	s.Step("an operator is told what is listed, what is held back and until when", func(s *e2e.Setup) {
		d.answers(s, writer, personSAN, 0, list, "web/shop: managed, as seen by the leader ports: http 30080/TCP", table,
			"2 ready, 0 draining, 1 not ready", "guard: Guard shrink (source default) holds 1 address:", "next decision: in T")
		d.answers(s, writer, personSAN, 0, explain(leaving), leaving+" of web/shop, as seen by the leader",
			"Service: managed ports: http 30080/TCP", "source: default: draining for T, as "+all[0].Name+" (observation",
			"probe: passing for T", "decision: hold, by rule shrink: source default: DRAINING, probe: passing",
			"current: ready desired: ready", "guard: Guard shrink (source default) holds 1 address:",
			"next decision: in T", "Guard shrink holds a change: still listed as ready.")
		d.answers(
			s,
			writer,
			personSAN,
			1,
			explain(dead.Address.String()),
			"default: ready for T, as "+dead.Name,
			"failing for T: ",
			"last passed T ago",
			"unready, by rule table",
			"desired: not ready",
			"The probe fails:",
		)
		d.answers(
			s,
			writer,
			personSAN,
			1,
			explain("10.0.1.9"),
			"default: does not list it",
			"this address is not probed",
			"none for this address",
			"No source and no slice lists this address",
		)
	})
	s.Step("a subscriber is told what is listed, and not why", func(s *e2e.Setup) {
		d.answers(s, writer, proxySAN, 0, list, table, "changes held by guards: 1; only clients with role operator see the guards")
		d.answers(s, writer, proxySAN, 1, explain(leaving), "PermissionDenied", "role operator")
	})
	const stranger = "spiffe://lab.example/stranger"
	s.Step("strangers are told nothing", func(s *e2e.Setup) {
		s.Issue(d.clients, d.sub(s, "stranger"), pki.Cert{URIs: []string{stranger}, Usage: pki.Client})
		d.answers(s, writer, "stranger", 1, list, "Unavailable", "the writer rejects CLIENT_CERT_FILE")
		s.Issue(d.theirs, d.sub(s, "impostor"), pki.Cert{DNS: []string{personSAN}, Usage: pki.Client})
		d.answers(s, writer, "impostor", 1, list, "Unavailable")
		code, text := e2e.Run(s.T, "slicefeed-writer", d.asking(writer.Dir(), writer), list...)
		if code != 1 || !strings.Contains(text, "Unavailable") {
			s.T.Errorf("with the link's own certificate: exit code %d: %s", code, text)
		}
	})
	s.Step("what cannot be answered is told as such", func(s *e2e.Setup) {
		d.answers(s, writer, personSAN, 1, []string{"endpoints", "web/nobody"}, "web/nobody is not a target of this writer")
		d.answers(s, writer, personSAN, 2, []string{"explain", "web/shop", dead.Name}, dead.Name)
	})
	s.Step("grpcurl sees the service and asks it all", func(s *e2e.Setup) { d.grpcurl(s, writer, leaving) })

	s.Step("a source that is cut off is told as such, and what it said stays", func(s *e2e.Setup) {
		s.Must(s.Inventory.Kill())
		d.answers(s, writer, personSAN, 0, list, table, "source: default: link down")
		d.answers(s, writer, personSAN, 0, explain(leaving), "default: draining for T, as "+all[0].Name, "link down")
		s.Restart(writer)
		_, err := s.WaitLeading(s.Ctx())
		s.Must(err)
		d.answers(s, writer, personSAN, 0, list, table, "source: default: not synced since start")
		d.answers(s, writer, personSAN, 0, explain(leaving), "default: not synced since start", "desired: ready")
	})
	s.Step("a Service that is paused is told as its slices are", func(s *e2e.Setup) {
		patchService(s, `{"metadata":{"annotations":{"slicefeed.dev/paused":"true"}}}`)
		d.answers(s, writer, personSAN, 0, list, "web/shop: paused (Paused:", table)
		slice := s.Slice()
		for i := range slice.Endpoints {
			if slice.Endpoints[i].Addresses[0] == leaving {
				slice.Endpoints[i].Conditions.Ready, slice.Endpoints[i].Conditions.Terminating = new(false), new(true)
			}
		}
		_, err := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).Update(s.Ctx(), slice, metav1.UpdateOptions{})
		s.Must(err)
		d.answers(
			s,
			writer,
			personSAN,
			0,
			list,
			"web/shop: paused (Paused:",
			strings.Replace(table, leaving+" ready", leaving+" draining", 1),
		)
		d.answers(
			s,
			writer,
			personSAN,
			1,
			explain(leaving),
			"paused (Paused:",
			"Service is paused; nothing is written. Its slices list the address as draining.",
		)
	})
	s.Step("so is one that is refused", func(s *e2e.Setup) {
		patchService(s, `{"metadata":{"annotations":{"slicefeed.dev/paused":null}},"spec":{"selector":{"app":"shop"}}}`)
		d.answers(s, writer, personSAN, 0, list, "web/shop: rejected (ServiceHasSelector:", leaving+" draining")
		d.answers(s, writer, personSAN, 1, explain(leaving), "rejected (ServiceHasSelector:",
			"no endpoints are added, and failing ones still become not ready. Its slices list the address as draining.")
	})
	s.Step("the list is read again", func(s *e2e.Setup) {
		s.WriteFile(d.list, welcome+"- {san: "+stranger+", role: subscriber}\n")
		d.answers(s, writer, "stranger", 0, list, "web/shop: rejected (ServiceHasSelector:")
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
	const service, operators = "slicefeed.writer.v1.WriterService", "slicefeed.writer.v1.WriterOperatorService"
	for _, one := range []struct{ request, method, says string }{
		{"", "list", service},
		{"", service + "/ListTargets", `"TARGET_STATE_MANAGED"`},
		{`{"services":[{"namespace":"web"}]}`, service + "/WatchEndpoints", `"synced": true`},
		{`{"services":[{"namespace":"web","service":"shop"}],"groupByPort":true}`, service + "/WatchEndpoints", `"synced": true`},
		{`{"namespace":"web","service":"shop","address":"` + address + `"}`, operators + "/ExplainEndpoint", `"rule": "shrink"`},
		{`{"services":[{"namespace":"web"}]}`, operators + "/ListTargetDetails", `"rule": "shrink"`},
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
