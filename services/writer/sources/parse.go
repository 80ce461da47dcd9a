package sources

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// problem is an error in SOURCES_FILE.
type problem struct {
	line   int    // 0: the file as a whole
	source string // empty: the file as a whole
	text   string
}

func (p *problem) Error() string {
	where := p.source
	if p.line > 0 {
		where = strings.TrimSuffix(fmt.Sprintf("line %d, %s", p.line, p.source), ", ")
	}
	return strings.TrimPrefix(where+": "+p.text, ": ")
}

// parser collects the problems of the file. It walks the YAML nodes itself, because the library's decoder
// reports neither the line of a value nor the field that a misspelled one is close to.
type parser struct {
	directory string
	defaults  Source
	problems  []*problem
}

func parseSources(text []byte, directory string, defaults Source) ([]Source, []error) {
	if len(text) > maxFileSize {
		return nil, []error{fmt.Errorf("want at most %d KiB", maxFileSize>>10)}
	}
	var document yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, []error{err}
	}
	p := &parser{directory: directory, defaults: defaults}
	if !errors.Is(d.Decode(new(yaml.Node)), io.EOF) {
		p.addf(0, "more than one YAML document")
	}
	all := p.readDocument(&document)
	if len(p.problems) == 0 {
		slices.SortFunc(all, func(a, b Source) int { return cmp.Compare(a.Name, b.Name) })
		return all, nil
	}
	slices.SortStableFunc(p.problems, func(a, b *problem) int { return cmp.Compare(a.line, b.line) })
	errs := make([]error, len(p.problems))
	for i, found := range p.problems {
		errs[i] = found
	}
	return nil, errs
}

func (p *parser) addf(line int, format string, args ...any) {
	p.problems = append(p.problems, &problem{line: line, text: fmt.Sprintf(format, args...)})
}

func (p *parser) readDocument(document *yaml.Node) []Source {
	const want = `want "sources:" and for each a name, an address, a san and cidrs`
	if len(document.Content) == 0 || isEmptyNode(document.Content[0]) {
		p.addf(0, "empty: %s", want)
		return nil
	}
	top, ok := p.readMapping(document.Content[0], want, []string{"sources"})
	if !ok {
		return nil
	}
	list := top.values["sources"]
	if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		p.addf(top.line, "no sources: %s", want)
		return nil
	}
	var all []Source
	names := map[string]int{}
	for i, node := range list.Content {
		before := len(p.problems)
		s := p.readSource(node)
		if first, twice := names[s.Name]; twice && s.Name != "" {
			p.addf(node.Line, "name: duplicate of source %d", first)
		} else {
			names[s.Name] = i + 1
		}
		source := fmt.Sprintf("source %d", i+1)
		if s.Name != "" {
			source = fmt.Sprintf("source %.80q", s.Name)
		}
		for _, found := range p.problems[before:] {
			found.source = source
		}
		all = append(all, s)
	}
	return all
}

// sourceFields are the fields of a source, in the order of the documentation.
var sourceFields = []string{"name", "address", "san", "caFile", "cidrs", "namespaces", "ports"}

func (p *parser) readSource(node *yaml.Node) Source {
	s := Source{CAFile: p.defaults.CAFile, Ports: p.defaults.Ports}
	m, ok := p.readMapping(node, "want a name, an address, a san and cidrs", sourceFields)
	if !ok {
		return s
	}
	p.scalarField(m, "name", func(text string) string {
		s.Name = text
		return settings.Check("DNS label", text)
	})
	p.scalarField(m, "address", func(text string) string {
		s.Address = text
		return settings.Check("host:port", text)
	})
	p.scalarField(m, "san", func(text string) string {
		return errorText(s.SAN.UnmarshalText([]byte(text)))
	})
	if n := m.values["caFile"]; s.CAFile == "" || n != nil && !isEmptyNode(n) {
		p.scalarField(m, "caFile", func(text string) string {
			if text == "" {
				return "a PEM file with the CAs that sign this inventory's certificate, or TLS_PEER_CA_FILE as the default"
			}
			if s.CAFile = text; !filepath.IsAbs(text) {
				s.CAFile = filepath.Join(p.directory, text)
			}
			return ""
		})
	}
	p.listField(m, "cidrs", func(text string) string {
		var subnet settings.Subnet
		err := subnet.UnmarshalText([]byte(text))
		if !strings.Contains(text, "/") { // a setting may also be a prefix such as 10.0.1, this file may not
			return settings.Forms["CIDR"].Want
		}
		s.CIDRs = append(s.CIDRs, subnet.Prefix)
		return errorText(err)
	})
	if m.values["namespaces"] != nil {
		p.listField(m, "namespaces", func(text string) string {
			s.Namespaces = append(s.Namespaces, text)
			return settings.Check("DNS label", text)
		})
		slices.Sort(s.Namespaces)
		s.Namespaces = slices.Compact(s.Namespaces)
	}
	if m.values["ports"] != nil {
		s.Ports = nil
		p.listField(m, "ports", func(text string) string {
			var r PortRange
			err := r.UnmarshalText([]byte(text))
			s.Ports = append(s.Ports, r)
			return errorText(err)
		})
	}
	return s
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
