package clientlist

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
)

// parseClients parses the client list and returns its grants in the order of the file. It rejects
// unknown keys, which may be misspelled restrictions.
func parseClients(text []byte) ([]Grant, error) {
	var list struct {
		Clients []struct {
			SAN      string   `yaml:"san"`
			Role     Role     `yaml:"role"`
			Services []string `yaml:"services"`
		} `yaml:"clients"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var problems []error
	err := d.Decode(&list)
	var typeError *yaml.TypeError
	switch {
	case errors.As(err, &typeError): // the rest was decoded, so its problems are reported too
		for _, m := range typeError.Errors {
			problems = append(problems, errors.New(m))
		}
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	default:
		if err == nil && !errors.Is(d.Decode(new(yaml.Node)), io.EOF) {
			problems = append(problems, errors.New("more than one YAML document"))
		}
	}
	if len(list.Clients) == 0 && len(problems) == 0 {
		return nil, errors.New(`no client listed, so no call would be allowed; want "clients:" with san and role for each`)
	}

	var grants []Grant
	seen := map[certificate.SAN]int{}
	for n, c := range list.Clients {
		at := fmt.Sprintf("client %d (%q)", n+1, c.SAN)
		g := Grant{Role: c.Role}
		if g.SAN, err = certificate.ParseSAN(c.SAN); err != nil {
			problems = append(problems, fmt.Errorf("%s: san: %w", at, err))
		} else if first, exists := seen[g.SAN]; exists {
			problems = append(problems, fmt.Errorf("%s: san is already listed as client %d", at, first))
		} else {
			seen[g.SAN] = n + 1
		}
		if c.Role != RoleSubscriber && c.Role != RoleOperator {
			problems = append(problems, fmt.Errorf("%s: role is %q, want subscriber or operator", at, c.Role))
		}
		problems = append(problems, checkServices(at, c.Services)...)
		g.Services = slices.Compact(slices.Sorted(slices.Values(c.Services)))
		grants = append(grants, g)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return grants, nil
}

// checkServices returns an error for each pattern of the client that is none.
func checkServices(at string, patterns []string) (problems []error) {
	for _, pattern := range patterns {
		if !isServicePattern(pattern) {
			problems = append(problems, fmt.Errorf("%s: services: %q is not namespace/name, of which either part can be *", at, pattern))
		}
	}
	return problems
}

// isServicePattern reports whether a text is namespace/name, of which either part can be anyName.
func isServicePattern(text string) bool {
	parts := strings.Split(text, "/")
	return len(parts) == 2 && !slices.ContainsFunc(parts, func(part string) bool {
		return part != anyName && len(validation.IsDNS1123Label(part)) > 0
	})
}
