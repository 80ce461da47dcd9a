package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// parseClients reads the list strictly: an unknown key may be a restriction with a typing
// mistake in it, and a key without a value one that somebody forgot to write. The order is that of the file.
func parseClients(text []byte) ([]Grant, error) {
	var list struct {
		Clients []struct {
			SAN  string `yaml:"san"`
			Role Role   `yaml:"role"`
			View struct {
				NodeSelector string   `yaml:"nodeSelector"`
				Labels       []string `yaml:"labels"`
			} `yaml:"view"`
		} `yaml:"clients"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var problems []error
	err := d.Decode(&list)
	var mistakes *yaml.TypeError
	switch {
	case errors.As(err, &mistakes): // the rest has been decoded, so that its problems can be told too
		for _, m := range mistakes.Errors {
			problems = append(problems, errors.New(m))
		}
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	default:
		if err == nil && !errors.Is(d.Decode(new(yaml.Node)), io.EOF) {
			problems = append(problems, errors.New("holds more than one YAML document"))
		}
	}
	problems = append(problems, findEmptyViews(text)...)
	if len(list.Clients) == 0 && len(problems) == 0 {
		return nil, errors.New(`lists no client, so nobody could call; want "clients:" with a san and a role each`)
	}

	var grants []Grant
	seen := map[SAN]int{}
	for n, c := range list.Clients {
		at := fmt.Sprintf("client %d (%q)", n+1, c.SAN)
		g := Grant{Role: c.Role, View: View{NodeSelector: labels.Everything()}}
		if g.SAN, err = ParseSAN(c.SAN); err != nil {
			problems = append(problems, fmt.Errorf("%s: san: %w", at, err))
		} else if first, twice := seen[g.SAN]; twice {
			problems = append(problems, fmt.Errorf("%s: this san is listed already, as client %d", at, first))
		} else {
			seen[g.SAN] = n + 1
		}
		if c.Role != RoleSubscriber && c.Role != RoleOperator {
			problems = append(problems, fmt.Errorf("%s: role is %q, want subscriber or operator", at, c.Role))
		}
		if s, err := labels.Parse(c.View.NodeSelector); err != nil {
			problems = append(problems, fmt.Errorf("%s: view.nodeSelector %q: %w", at, c.View.NodeSelector, err))
		} else {
			g.View.NodeSelector = s
		}
		for _, key := range c.View.Labels {
			if len(validation.IsQualifiedName(key)) > 0 {
				problems = append(problems, fmt.Errorf("%s: view.labels: %q is no label key", at, key))
			}
		}
		g.View.Labels = slices.Compact(slices.Sorted(slices.Values(c.View.Labels)))
		if len(g.View.Labels) > maxViewLabels { // or a node could have more than the contract allows
			problems = append(problems, fmt.Errorf("%s: view.labels has %d keys, want at most %d", at, len(g.View.Labels), maxViewLabels))
		}
		grants = append(grants, g)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return grants, nil
}

// findEmptyViews finds views and node selectors that are there and say nothing. Decoded into a struct they
// are like those that are absent, which select everything.
func findEmptyViews(text []byte) []error {
	var list struct {
		Clients []map[string]any `yaml:"clients"`
	}
	if yaml.Unmarshal(text, &list) != nil {
		return nil // it is told by the strict decoder, or is none of a view's problems
	}
	var problems []error
	for n, c := range list.Clients {
		view, present := c["view"]
		if !present {
			continue
		}
		at := fmt.Sprintf("client %d (%q)", n+1, fmt.Sprint(c["san"]))
		keys, _ := view.(map[string]any)
		if len(keys) == 0 {
			problems = append(problems, fmt.Errorf("%s: view is empty, which would select every node; leave view out for that", at))
			continue
		}
		if selector, present := keys["nodeSelector"]; present && (selector == nil || strings.Trim(fmt.Sprint(selector), " \t\r\n,") == "") {
			problems = append(problems, fmt.Errorf("%s: view.nodeSelector is empty, which would select every node; leave nodeSelector out for that", at))
		}
	}
	return problems
}
