package sim

import (
	"bytes"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Text is a Script for people to read and to alter; Parse reads it again.
func (s Script) Text() string {
	text, err := yaml.Marshal(s)
	if err != nil {
		panic(err) // it is made of numbers and texts alone
	}
	return string(text)
}

// Parse reads what Text wrote.
func Parse(text string) (s Script, err error) {
	decoder := yaml.NewDecoder(bytes.NewBufferString(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&s); err != nil {
		return s, err
	}
	for _, f := range s.Faults {
		if !slices.Contains(Kinds, f.Kind) && !slices.Contains(PortKinds, f.Kind) {
			return s, fmt.Errorf("no kind of fault is named %q", f.Kind)
		}
	}
	return s, nil
}
