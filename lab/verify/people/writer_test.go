package people

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/pki"
)

// asked is what the writer's command says, with settings that differ.
func asked(s *e2e.Setup, command string, settings ...string) (int, string) {
	s.T.Helper()
	return e2e.Run(s.T, "slicefeed-writer", append(s.Writers[0].Env(), settings...), command)
}

func TestWriterPeoplePreflight(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	w := s.Machine(pair.WorkerOptions{})
	s.Must(w.Join(s.Ctx()))
	// line wants preflight to print this, and to exit with this code.
	line := func(says string, code int, settings ...string) func(*e2e.Setup) {
		return func(s *e2e.Setup) {
			s.T.Helper()
			got, text := asked(s, "preflight", settings...)
			if got != code || !e2e.InOrder(text, strings.Split(says, "|")...) {
				s.T.Errorf("exit code %d, want %d and %q:\n%s", got, code, says, text)
			}
		}
	}
	s.Step("with no inventory", line("inventory FAILED|check INVENTORY_ADDRESS|admission policy ok", 1))
	s.Must(s.Inventory.Start(s.Ctx()))
	s.Step("all is well", func(s *e2e.Setup) {
		line("certificate ok|peer CA ok|inventory ok|allowlist ok|API server ok|endpointslices ok may get endpointslices in web|"+
			"update leases slicefeed-default in web|excess permissions ok|admission policy ok", 0)(s)
		if _, text := asked(s, "preflight"); strings.Contains(text, "warning") {
			s.T.Error(text)
		}
	})
	other, err := pki.NewCA("somebody's side")
	s.Must(err)
	foreign, err := other.Write(t.TempDir(), "ca")
	s.Must(err)
	for _, wrong := range []struct {
		name, says string
		code       int
		settings   []string
	}{
		{"another name", "inventory FAILED|certificate is for another name|check the server's name", 1, []string{"INVENTORY_SAN=spiffe://lab.example/somebody"}},
		{"another CA", "inventory FAILED|must contain the CA that signs it", 1, []string{"TLS_PEER_CA_FILE=" + foreign}},
		{"another address", "inventory FAILED|check INVENTORY_ADDRESS", 1, []string{"INVENTORY_ADDRESS=" + pair.InventoryAddress.String() + ":1"}},
		{"an allowlist with the API server", "allowlist warning " + pair.ConsumingAddress.String(), 0, []string{"SECURED_SUBNET_CIDR=10.0.0.0/24,10.0.1.0/24"}},
		{"an allowlist with its port too", "allowlist FAILED|narrow SECURED_SUBNET_CIDR", 1, []string{"SECURED_SUBNET_CIDR=10.0.0.0/24,10.0.1.0/24", "ALLOWED_PORTS=1-65535"}},
		{"a setting that cannot work", "INVENTORY_SAN", 2, []string{"INVENTORY_SAN=*"}},
	} {
		s.Step(wrong.name, line(wrong.says, wrong.code, wrong.settings...))
	}
	s.Step("a certificate that the inventory does not accept", func(s *e2e.Setup) {
		dir := s.T.TempDir()
		s.Issue(other, dir, pki.Cert{CommonName: "writer", URIs: []string{pair.WriterSAN}, Usage: pki.Client})
		line(
			"inventory FAILED|the server rejected the certificate|see the server's log",
			1,
			"TLS_CERT_FILE="+dir+"/tls.crt",
			"TLS_KEY_FILE="+dir+"/tls.key",
		)(s)
	})
	s.Step("a permission is missing", func(s *e2e.Setup) {
		withoutRole(s)
		line("services FAILED may not list services in web|bind the role", 1)(s)
	})
	s.Step("the policy is not bound", func(s *e2e.Setup) {
		withoutPolicy(s)
		s.Until("it is seen", func() bool {
			_, text := asked(s, "preflight")
			return e2e.InOrder(text, "admission policy warning", "deploy/manifests/writer-policy.yaml")
		})
	})
	s.Until("all is well again", func() bool {
		code, text := asked(s, "preflight")
		return code == 0 && !strings.Contains(text, "warning")
	})
	s.Step("a name that is not on the inventory's list", func(s *e2e.Setup) {
		list := s.Inventory.Dir() + "/clients.yaml"
		s.RestoreFiles(list)
		s.WriteFile(list, "clients:\n- san: "+pair.OperatorSAN+"\n  role: operator\n")
		s.Restart(s.Inventory)
		line("inventory FAILED|the server rejected the certificate|list its name", 1)(s)
	})
	if all := s.Now(); len(all) != 0 {
		t.Errorf("it wrote: %s", pair.Describe(all))
	}
	if holder := s.Leader(); holder != "" {
		t.Errorf("%s holds the Lease", holder)
	}
}

// withoutRole takes the writer's permissions away for this test only.
func withoutRole(s *e2e.Setup) {
	s.T.Helper()
	bindings := s.ConsumingClient().RbacV1().RoleBindings(pair.Namespace)
	binding, err := bindings.Get(s.Ctx(), "slicefeed-writer", metav1.GetOptions{})
	s.Must(err)
	s.Must(bindings.Delete(s.Ctx(), binding.Name, metav1.DeleteOptions{}))
	s.T.Cleanup(func() {
		binding.ResourceVersion, binding.UID = "", ""
		if _, err := bindings.Create(context.WithoutCancel(s.T.Context()), binding, metav1.CreateOptions{}); err != nil {
			s.T.Error(err)
		}
	})
	s.Until("the authorizer knows it", func() bool {
		_, err := s.ClientWith(s.WriterKubeconfig()).CoreV1().Services(pair.Namespace).List(s.Ctx(), metav1.ListOptions{})
		return err != nil
	})
}

// withoutPolicy unbinds the admission policy for this test only.
func withoutPolicy(s *e2e.Setup) {
	s.T.Helper()
	bindings := s.ConsumingClient().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	binding, err := bindings.Get(s.Ctx(), "slicefeed-writer."+pair.Namespace, metav1.GetOptions{})
	s.Must(err)
	s.Must(bindings.Delete(s.Ctx(), binding.Name, metav1.DeleteOptions{}))
	s.T.Cleanup(func() {
		binding.ResourceVersion, binding.UID = "", ""
		if _, err := bindings.Create(context.WithoutCancel(s.T.Context()), binding, metav1.CreateOptions{}); err != nil {
			s.T.Error(err)
		}
	})
}

func TestWriterPeoplePlan(t *testing.T) {
	s := e2e.New(t, e2e.Options{})
	w, silent := s.Machine(pair.WorkerOptions{}), s.Machine(pair.WorkerOptions{})
	s.Must(w.Join(s.Ctx()))
	s.Must(s.Inventory.Start(s.Ctx()))

	s.Step("before the writer ever ran it says what would be created, and creates nothing", func(s *e2e.Setup) {
		s.ExpectNoWrites(func() {
			code, text := asked(s, "plan")
			if code != 0 || !e2e.ContainsAll(text, "shop-slicefeed: create planned", "+ endpoint "+w.Address.String()+" ready",
				"+ port http 30080/TCP", "+ label endpointslice.kubernetes.io/managed-by slicefeed-default", "ADDRESS") {
				s.T.Errorf("exit code %d:\n%s", code, text)
			}
			s.T.Log("\n" + text)
		})
		if len(s.Now()) != 0 || s.Leader() != "" {
			s.T.Errorf("it wrote: %s; the Lease is held by %q", pair.Describe(s.Now()), s.Leader())
		}
	})
	s.StartWriters()
	s.Await("it serves", pair.Are(pair.Ready, w.Address))
	s.Step("beside a running writer there is nothing to write", func(s *e2e.Setup) {
		s.ExpectNoWrites(func() {
			code, text := asked(s, "plan")
			if code != 0 || !e2e.ContainsAll(text, "nothing to write", w.Address.String(), "listed:  ready") ||
				strings.Contains(text, " planned") {
				s.T.Errorf("exit code %d:\n%s", code, text)
			}
		})
	})
	s.Must(s.Writers[0].Terminate(e2e.Patience))
	s.Step("after it, what has changed since", func(s *e2e.Setup) {
		s.Must(silent.Join(s.Ctx()))
		s.AwaitMetric(s.Inventory, `slicefeed_inventory_nodes{state="ready"}`, e2e.Equals(2))
		slice := s.Slice()
		slice.Endpoints[0].Conditions.Ready, slice.Endpoints[0].Conditions.Serving = new(false), new(false)
		slice.Labels["app"] = "mine"
		s.UpdateSlice(slice)
		s.Await("somebody has put it out", pair.Are(pair.Out, w.Address))
		s.ExpectNoWrites(func() {
			code, text := asked(s, "plan")
			if code != 0 ||
				!e2e.ContainsAll(text, "shop-slicefeed: update planned", "~ endpoint "+w.Address.String()+" not ready -> ready",
					"+ endpoint "+silent.Address.String()+" ready") {
				s.T.Errorf("exit code %d:\n%s", code, text)
			}
			s.T.Log("\n" + text)
		})
	})
	s.Step("a Service that is refused is an answer that could not be had", func(s *e2e.Setup) {
		code, text := asked(s, "plan", "TARGET_SERVICE_NAME=nobody")
		if code != 1 || !e2e.ContainsAll(text, "The Service does not exist") {
			s.T.Errorf("exit code %d:\n%s", code, text)
		}
	})
	s.Step("a configuration that cannot work is told as such", func(s *e2e.Setup) {
		code, text := asked(s, "plan", "TLS_CERT_FILE=/nonexistent")
		if code != 2 || !e2e.ContainsAll(text, "/nonexistent") {
			s.T.Errorf("exit code %d:\n%s", code, text)
		}
	})
}
