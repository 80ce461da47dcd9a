package charts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/mod/modfile"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// Definitions returns the files with the custom resources that the charts can use, and those that the controllers of cert-manager
// also need, from the modules that lab/upstream/crds requires.
func Definitions(ctx context.Context) ([]string, error) {
	modules, err := Download(ctx, "crds")
	if err != nil {
		return nil, err
	}
	where := map[string][]string{
		"github.com/cert-manager/cert-manager": {
			"deploy/crds/cert-manager.io_certificates.yaml", "deploy/crds/cert-manager.io_issuers.yaml",
			"deploy/crds/cert-manager.io_certificaterequests.yaml", "deploy/crds/cert-manager.io_clusterissuers.yaml",
		},
		"github.com/cert-manager/trust-manager": {"deploy/crds/trust.cert-manager.io_bundles.yaml"},
		"github.com/prometheus-operator/prometheus-operator": {
			"example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
			"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
		},
	}
	var files []string
	for path, dir := range modules {
		for _, file := range where[path] {
			files = append(files, filepath.Join(dir, file))
		}
	}
	return files, nil
}

// ServiceImports returns the file with the custom resource ServiceImport, from the module that lab/upstream/crds requires.
func ServiceImports(ctx context.Context) (string, error) {
	modules, err := Download(ctx, "crds")
	if err != nil {
		return "", err
	}
	return filepath.Join(modules["sigs.k8s.io/mcs-api"], "config", "crd", "multicluster.x-k8s.io_serviceimports.yaml"), nil
}

// Download downloads the modules that one in lab/upstream requires, and returns their directories by path.
func Download(ctx context.Context, upstream string) (map[string]string, error) {
	root, err := pair.Root()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, "lab", "upstream", upstream)
	raw, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, err
	}
	mod, err := modfile.Parse("go.mod", raw, nil)
	if err != nil {
		return nil, err
	}
	args := []string{"mod", "download", "-json"}
	for _, r := range mod.Require {
		args = append(args, r.Mod.String())
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("download what lab/upstream/%s requires: %w\n%s", upstream, err, out)
	}
	modules := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var module struct {
			Path string `json:"Path"`
			Dir  string `json:"Dir"`
		}
		if err := decoder.Decode(&module); err != nil {
			return nil, err
		}
		modules[module.Path] = module.Dir
	}
	return modules, nil
}
