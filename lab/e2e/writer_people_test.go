package e2e

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// asked is what the writer's command says, with settings that differ.
func (s *stage) asked(command string, settings ...string) (int, string) {
	s.t.Helper()
	return run(s.t, "slicefeed-writer", append(s.Writers[0].Env(), settings...), command)
}

func TestWriterPeoplePreflight(t *testing.T) {
	s := enter(t, script{})
	w := s.machine(pair.WorkerOptions{})
	s.must(w.Join(s.ctx()))
	code, text := s.asked("preflight")
	if code != 1 || !containsAll(text, "FAIL  inventory", "check INVENTORY_ADDRESS", "ok    admission policy") {
		t.Errorf("with no inventory: exit code %d:\n%s", code, text)
	}
	s.must(s.Inventory.Start(s.ctx()))

	// line wants preflight to say this, and to fail nothing else of what is named.
	line := func(says string, code int, settings ...string) func(*stage) {
		return func(s *stage) {
			s.t.Helper()
			got, text := s.asked("preflight", settings...)
			if got != code || !containsAll(text, strings.Split(says, "|")...) {
				s.t.Errorf("exit code %d, want %d and %q:\n%s", got, code, says, text)
			}
		}
	}
	s.step("all is well", func(s *stage) {
		code, text := s.asked("preflight")
		if code != 0 || strings.Contains(text, "FAIL") || strings.Contains(text, "WARN") || !containsAll(text,
			"ok    inventory", "members: 1, ready: 1; membership synced, addresses synced", "ok    create endpointslices in web",
			"ok    update leases slicefeed-default in web", "web/shop can be managed", "ok    admission policy", "ok    allowlist",
			"1 of 1 addresses accept connections at port 30080") {
			s.t.Errorf("exit code %d:\n%s", code, text)
		}
		s.t.Log("\n" + text)
	})
	other, err := pki.NewCA("somebody's side")
	s.must(err)
	foreign, err := other.Write(t.TempDir(), "ca")
	s.must(err)
	for _, wrong := range []struct {
		name, says string
		code       int
		settings   []string
	}{
		{"another name", "FAIL  inventory|check INVENTORY_SAN", 1, []string{"INVENTORY_SAN=spiffe://lab.example/somebody"}},
		{"another CA", "FAIL  inventory|TLS_PEER_CA_FILE must contain the CA", 1, []string{"TLS_PEER_CA_FILE=" + foreign}},
		{"another address", "FAIL  inventory|check INVENTORY_ADDRESS", 1, []string{"INVENTORY_ADDRESS=" + pair.InventoryAddress.String() + ":1"}},
		{"a CIDR of somewhere else", "FAIL  admission policy|outside of the allowed CIDRs|FAIL  probes|check SECURED_SUBNET_CIDR", 1, []string{"SECURED_SUBNET_CIDR=10.9.0.0/24"}},
		{"an allowlist with the API server", "WARN  allowlist|this cluster's API server, " + pair.ConsumingAddress.String(), 1, []string{"SECURED_SUBNET_CIDR=10.0.0.0/24,10.0.1.0/24"}},
		{"an allowlist with its port too", "FAIL  allowlist|narrow SECURED_SUBNET_CIDR or ALLOWED_PORTS", 1, []string{"SECURED_SUBNET_CIDR=10.0.0.0/24,10.0.1.0/24", "ALLOWED_PORTS=1-65535"}},
		{"a port that nobody listens at", "FAIL  probes|0 of 1 addresses accept connections at port 30081|targetPort", 1, []string{"TARGET_PORT=30081"}},
		{"a Service that is not there", "FAIL  Service|Service nobody does not exist", 1, []string{"TARGET_SERVICE_NAME=nobody"}},
		{"a setting that cannot work", "INVENTORY_SAN", 2, []string{"INVENTORY_SAN=*"}},
	} {
		s.step(wrong.name, line(wrong.says, wrong.code, wrong.settings...))
	}
	s.step("a certificate that the inventory does not accept", func(s *stage) {
		dir := s.t.TempDir()
		s.issue(other, dir, pki.Cert{CommonName: "writer", URIs: []string{pair.WriterSAN}, Usage: pki.Client})
		line(
			"FAIL  inventory|the inventory rejects the writer's certificate",
			1,
			"TLS_CERT_FILE="+dir+"/tls.crt",
			"TLS_KEY_FILE="+dir+"/tls.key",
		)(
			s,
		)
	})
	s.step("a permission is missing", func(s *stage) {
		s.withoutRole()
		line("FAIL  list services in web|bind the role|-     Service", 1)(s)
	})
	s.step("a Service with a selector", func(s *stage) {
		s.patchService(`{"spec":{"selector":{"app":"shop"}}}`)
		line("FAIL  Service|Remove spec.selector", 1)(s)
		s.patchService(`{"spec":{"selector":null}}`)
	})
	s.step("the policy is not bound", func(s *stage) {
		s.withoutPolicy()
		s.until("it is seen", func() bool {
			_, text := s.asked("preflight")
			return containsAll(text, "WARN  admission policy", "deploy/manifests/writer-policy.yaml")
		})
	})
	s.until("all is well again", func() bool {
		code, text := s.asked("preflight")
		return code == 0 && !strings.Contains(text, "WARN")
	})
	s.step("a name that is not on the inventory's list", func(s *stage) {
		list := s.Inventory.Dir() + "/clients.yaml"
		s.keep(list)
		s.write(list, "clients:\n- san: "+pair.OperatorSAN+"\n  role: operator\n")
		s.restart(s.Inventory)
		line("FAIL  inventory|and its ALLOWED_CLIENTS_FILE the SAN", 1)(s)
	})
	if all := s.Now(); len(all) != 0 {
		t.Errorf("it wrote: %s", pair.Describe(all))
	}
	if holder := s.Leader(); holder != "" {
		t.Errorf("%s holds the Lease", holder)
	}
}

// withoutRole takes the writer's permissions away for this test only.
func (s *stage) withoutRole() {
	s.t.Helper()
	bindings := s.ConsumingClient().RbacV1().RoleBindings(pair.Namespace)
	binding, err := bindings.Get(s.ctx(), "slicefeed-writer", metav1.GetOptions{})
	s.must(err)
	s.must(bindings.Delete(s.ctx(), binding.Name, metav1.DeleteOptions{}))
	s.t.Cleanup(func() {
		binding.ResourceVersion, binding.UID = "", ""
		if _, err := bindings.Create(context.WithoutCancel(s.t.Context()), binding, metav1.CreateOptions{}); err != nil {
			s.t.Error(err)
		}
	})
	s.until("the authorizer knows it", func() bool {
		_, err := s.as(s.writersKubeconfig()).CoreV1().Services(pair.Namespace).List(s.ctx(), metav1.ListOptions{})
		return err != nil
	})
}

// withoutPolicy unbinds the admission policy for this test only.
func (s *stage) withoutPolicy() {
	s.t.Helper()
	bindings := s.ConsumingClient().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	binding, err := bindings.Get(s.ctx(), "slicefeed-writer", metav1.GetOptions{})
	s.must(err)
	s.must(bindings.Delete(s.ctx(), binding.Name, metav1.DeleteOptions{}))
	s.t.Cleanup(func() {
		binding.ResourceVersion, binding.UID = "", ""
		if _, err := bindings.Create(context.WithoutCancel(s.t.Context()), binding, metav1.CreateOptions{}); err != nil {
			s.t.Error(err)
		}
	})
}

func (s *stage) patchService(patch string) {
	s.t.Helper()
	_, err := s.ConsumingClient().
		CoreV1().
		Services(pair.Namespace).
		Patch(s.ctx(), pair.Service, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.must(err)
}

func TestWriterPeoplePlan(t *testing.T) {
	s := enter(t, script{})
	w, silent := s.machine(pair.WorkerOptions{}), s.machine(pair.WorkerOptions{})
	s.must(w.Join(s.ctx()))
	s.must(s.Inventory.Start(s.ctx()))

	s.step("before the writer ever ran it says what would be created, and creates nothing", func(s *stage) {
		s.quiet(func() {
			code, text := s.asked("plan")
			if code != 0 || !containsAll(text, "create EndpointSlice shop-slicefeed", "+ endpoint "+w.Address.String()+" ready",
				"+ port http 30080/TCP", "+ label endpointslice.kubernetes.io/managed-by slicefeed-default", "ADDRESS") {
				s.t.Errorf("exit code %d:\n%s", code, text)
			}
			s.t.Log("\n" + text)
		})
		if len(s.Now()) != 0 || s.Leader() != "" {
			s.t.Errorf("it wrote: %s; the Lease is held by %q", pair.Describe(s.Now()), s.Leader())
		}
	})
	s.startWriters()
	s.slices("it serves", pair.Are(pair.Ready, w.Address))
	s.step("beside a running writer there is nothing to write", func(s *stage) {
		s.quiet(func() {
			code, text := s.asked("plan")
			if code != 0 || !containsAll(text, "nothing to write", w.Address.String(), "serve") ||
				strings.Contains(text, "EndpointSlice ") {
				s.t.Errorf("exit code %d:\n%s", code, text)
			}
		})
	})
	s.must(s.writers[0].Terminate(patience))
	s.step("after it, what has changed since", func(s *stage) {
		s.must(silent.Join(s.ctx()))
		slice := s.slice()
		slice.Endpoints[0].Conditions.Ready, slice.Endpoints[0].Conditions.Serving = new(false), new(false)
		slice.Labels["app"] = "mine"
		_, err := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).Update(s.ctx(), slice, metav1.UpdateOptions{})
		s.must(err)
		s.slices("somebody has put it out", pair.Are(pair.Out, w.Address))
		s.quiet(func() {
			code, text := s.asked("plan")
			if code != 0 ||
				!containsAll(text, "update EndpointSlice shop-slicefeed", "~ endpoint "+w.Address.String()+" not ready -> ready",
					"+ endpoint "+silent.Address.String()+" ready") {
				s.t.Errorf("exit code %d:\n%s", code, text)
			}
			s.t.Log("\n" + text)
		})
	})
	s.step("a Service that is refused is an answer that could not be had", func(s *stage) {
		code, text := s.asked("plan", "TARGET_SERVICE_NAME=nobody")
		if code != 1 || !containsAll(text, "Service nobody does not exist") {
			s.t.Errorf("exit code %d:\n%s", code, text)
		}
	})
	s.step("a configuration that cannot work is told as such", func(s *stage) {
		code, text := s.asked("plan", "TLS_CERT_FILE=/nonexistent")
		if code != 2 || !containsAll(text, "/nonexistent") {
			s.t.Errorf("exit code %d:\n%s", code, text)
		}
	})
}
