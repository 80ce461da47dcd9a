package charts

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// The rehearsal of a release pulls images by digest. Here a program stands for each image, whatever its digest.
const pinned = "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"

func TestBothChartsAreInstalledFromRegistryByDigest(t *testing.T) {
	s := enter(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	repository := "oci://" + strings.TrimPrefix(server.URL, "http://") + "/charts/"

	s.must(os.MkdirAll(filepath.Join(s.Dir(), "registry"), 0o700))
	for name, values := range map[string]string{
		Inventory: `settings: {SOURCE_KIND: static, SECURED_SUBNET_CIDR: 10.0.1.0/24, INVENTORY_STATIC: '[{"name": "one", "private_ip": "10.0.1.203", "ready": true, "worker": true}]'}
allowedClients: [{san: "spiffe://example.org/slicefeed/writer", role: subscriber}]
`,
		Writer: `settings: {INVENTORY_ADDRESS: "slicefeed-inventory.registry.svc:9443", INVENTORY_SAN: "spiffe://example.org/slicefeed/inventory", SECURED_SUBNET_CIDR: 10.0.1.0/24}
`,
	} {
		s.must(os.WriteFile(filepath.Join(s.Dir(), "registry", name+".yaml"), []byte(values), 0o600))
	}
	const k = "kubectl --context consuming -n registry "
	s.run(k + `create namespace registry
deploy/certificates.sh --inventory-namespace registry --writer-namespace registry --secured-context consuming all "$DIR/registry/pki" >"$DIR/registry/pki.sh"
sh -e "$DIR/registry/pki.sh"`)
	defer s.run(k + "delete namespace registry --wait=false")
	for _, chart := range []string{Inventory, Writer} {
		pushed := s.run(`helm package --destination "$DIR/registry" deploy/` + chart + ` >/dev/null
helm push --plain-http "$DIR/registry/` + chart + `-"*.tgz ` + repository)
		digest := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(pushed)
		s.run(
			"helm --kube-context consuming -n registry install " + chart + " " + repository + chart + "@" + digest + ` --plain-http -f "$DIR/registry/` + chart +
				`.yaml" --set image.digest=` + pinned + " --wait --timeout 50s",
		)
		defer s.run("helm --kube-context consuming -n registry uninstall " + chart + " --wait")
		if image := s.run(
			k + "get deployment " + chart + " -o jsonpath='{.spec.template.spec.containers[0].image}'",
		); !strings.HasSuffix(
			image,
			"@"+pinned,
		) {
			t.Errorf("%s runs the image %s", chart, image)
		}
	}
}
