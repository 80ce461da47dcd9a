package app

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
)

const (
	datacenterID = "7d2f6e1a-9c34-4b58-8f0e-1a6b3c5d7e90"
	server1      = "11111111-1111-4111-8111-111111111111"
	server2      = "22222222-2222-4222-8222-222222222222"
)

// fakeAPIs is a Kubernetes API server and an IONOS API, both served over HTTP.
type fakeAPIs struct {
	nodes     []corev1.Node
	isAllowed func(authorizationv1.ResourceAttributes) bool // nil: only to read nodes
	apiDown   bool                                          // the API server answers 503

	servers       []string // of the cloud, as JSON
	lanJSON       string   // the LAN, as JSON
	tokenRejected bool     // the cloud answers 401
	listingFails  bool     // the cloud's listing answers 503
}

func workerNode(name, server string, change ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-" + "1", ResourceVersion: "7"},
		Spec:       corev1.NodeSpec{ProviderID: "ionos://" + server},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, c := range change {
		c(&n)
	}
	return n
}

func controlPlane(n *corev1.Node) {
	n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
}

func serverJSON(id, name, address string) string {
	return fmt.Sprintf(
		`{"id":%q,"type":"server","metadata":{"state":"AVAILABLE"},"properties":{"name":%q},"entities":{"nics":{"id":"n","type":"collection","items":[`+
			`{"id":"nic-%s","type":"nic","properties":{"lan":2,"ips":[%q]}}]}}}`,
		id,
		name,
		name,
		address,
	)
}

const privateLAN = `{"id":"2","type":"lan","properties":{"name":"workers","public":false,"ipv4CidrBlock":"10.0.1.0/24"}}`

func (f *fakeAPIs) serveKubernetes(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case f.apiDown:
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcd is away","code":503}`)
	case r.URL.Path == "/version":
		io.WriteString(w, `{"gitVersion":"v1.36.3"}`)
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		body, _ := io.ReadAll(r.Body)
		var review authorizationv1.SelfSubjectAccessReview
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		requested := *review.Spec.ResourceAttributes
		review.Status.Allowed = requested.Resource == "nodes" &&
			(requested.Verb == "get" || requested.Verb == "list" || requested.Verb == "watch")
		if f.isAllowed != nil {
			review.Status.Allowed = f.isAllowed(requested)
		}
		review.TypeMeta = metav1.TypeMeta{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"}
		w.WriteHeader(http.StatusCreated)
		json.NewEncoder(w).Encode(review)
	case r.URL.Path == "/api/v1/nodes" && r.URL.Query().Get("watch") != "":
		f.serveNodeWatch(w, r)
	case r.URL.Path == "/api/v1/nodes":
		json.NewEncoder(w).Encode(corev1.NodeList{
			TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: f.nodes,
		})
	default:
		http.NotFound(w, r)
	}
}

// serveNodeWatch sends the initial list if requested, and then nothing.
func (f *fakeAPIs) serveNodeWatch(w http.ResponseWriter, r *http.Request) {
	event := func(kind string, n corev1.Node) {
		n.TypeMeta = metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}
		json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": n})
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, n := range f.nodes {
			event("ADDED", n)
		}
	}
	event("BOOKMARK", corev1.Node{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func (f *fakeAPIs) serveIONOS(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	path := strings.TrimPrefix(r.URL.Path, "/cloudapi/v6/datacenters/"+datacenterID)
	switch {
	case f.tokenRejected:
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"httpStatus":401,"messages":[{"errorCode":"315","message":"Unauthorized"}]}`)
	case path == "":
		fmt.Fprintf(w, `{"id":%q,"type":"datacenter","properties":{"name":"prod","location":"de/fra"}}`, datacenterID)
	case path == "/lans/2":
		io.WriteString(w, f.lanJSON)
	case path == "/servers" && !f.listingFails:
		fmt.Fprintf(w, `{"id":"%s/servers","type":"collection","items":[%s]}`, datacenterID, strings.Join(f.servers, ","))
	case path == "/servers":
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"httpStatus":503,"messages":[{"message":"maintenance"}]}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"httpStatus":404,"messages":[{"errorCode":"309","message":"Resource does not exist"}]}`)
	}
}

// newToken returns a JWT that expires at that time.
func newToken(expires time.Time) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"exp":%d}`, expires.Unix())) + "." + part("signed")
}

// start starts both servers, and returns an environment with their addresses.
func (f *fakeAPIs) start(t *testing.T, set map[string]string) map[string]string {
	t.Helper()
	if f.lanJSON == "" {
		f.lanJSON = privateLAN
	}
	api := httptest.NewServer(http.HandlerFunc(f.serveKubernetes))
	cloud := httptest.NewUnstartedServer(http.HandlerFunc(f.serveIONOS))
	cloud.Config.ErrorLog = log.New(io.Discard, "", 0)
	cloud.StartTLS()
	t.Cleanup(func() { api.CloseClientConnections(); api.Close(); cloud.CloseClientConnections(); cloud.Close() })
	dir := t.TempDir()
	files := map[string]string{
		"kubeconfig": fmt.Sprintf(
			"apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\nclusters: [{name: c, cluster: {server: %q}}]\n",
			api.URL,
		),
		"cloud-ca.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cloud.Certificate().Raw})),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := testkit.InventoryEnv()
	maps.Copy(env, map[string]string{
		"SECURED_KUBECONFIG": filepath.Join(
			dir,
			"kubeconfig",
		),
		"IONOS_API_URL":       cloud.URL,
		"IONOS_CA_FILE":       filepath.Join(dir, "cloud-ca.pem"),
		"IONOS_TOKEN":         newToken(time.Now().Add(200*24*time.Hour + time.Hour)),
		"IONOS_DATACENTER_ID": datacenterID,
	})
	maps.Copy(env, set)
	return env
}

// runCommand runs the command line, and returns its exit code, standard output and standard error.
func runCommand(t *testing.T, env map[string]string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := Component("v1.2.3").Command(func(name string) string { return env[name] })
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	err := cmd.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(&stderr, err)
	}
	return settings.ExitCode(err), stdout.String(), stderr.String()
}
