// Package charts renders both Helm charts and the plain manifests. Its tests apply them to an API server and check what it
// returns, and what it lets the charts' accounts do. They start nothing of the charts: that is for lab/verify/charts.
package charts

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// Run runs a command of the shell in the checkout, with the helm of the checkout, and returns its standard output.
func Run(ctx context.Context, command string) (string, error) {
	root, err := pair.Root()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, ".bin")
	if _, err := os.Stat(filepath.Join(bin, "helm")); err != nil {
		return "", fmt.Errorf("%w; make tools builds it", err)
	}
	var problems bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
	cmd.Dir, cmd.Stderr, cmd.Env = root, &problems, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", command, err, problems.String())
	}
	return string(out), nil
}

// Parse returns the objects of YAML documents.
func Parse(text string) (objects []*unstructured.Unstructured, err error) {
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			return nil, err
		}
		if o.Object != nil {
			objects = append(objects, o)
		}
	}
}
