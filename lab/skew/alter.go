package skew

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Alter is how the messages of a peer of another version differ from ours. The zero value
// alters nothing.
type Alter struct {
	// Unknown: a newer peer fills in fields that nobody knows, of every wire type, in every
	// message at every depth, in front of the known ones and behind them.
	Unknown bool
	// Enums: a newer peer has other values. Each value of such an enum becomes this one.
	Enums map[protoreflect.FullName]protoreflect.EnumNumber
	// Moved: a newer peer tells something else in the place of this field, under this number.
	Moved map[protoreflect.FullName]protowire.Number
	// Without: an older peer does not have these fields, or has nothing to fill them with.
	Without []protoreflect.FullName
}

// message rewrites an encoded message. It works on the wire rather than on decoded messages, so
// that entries of maps are reached too, and no library tidies up.
func (a *Alter) message(is protoreflect.MessageDescriptor, encoded []byte) ([]byte, error) {
	var out []byte
	if a.Unknown {
		out = append(out, foreign(is)...)
	}
	for len(encoded) > 0 {
		number, kind, n := protowire.ConsumeTag(encoded)
		if n < 0 {
			return nil, fmt.Errorf("%s: %w", is.FullName(), protowire.ParseError(n))
		}
		encoded = encoded[n:]
		n = protowire.ConsumeFieldValue(number, kind, encoded)
		if n < 0 {
			return nil, fmt.Errorf("field %d of %s: %w", number, is.FullName(), protowire.ParseError(n))
		}
		value := encoded[:n]
		encoded = encoded[n:]

		field := is.Fields().ByNumber(number)
		if field == nil { // a peer gives back what it was given: a cursor with all that it has
			out = append(protowire.AppendTag(out, number, kind), value...)
			continue
		}
		if slices.Contains(a.Without, field.FullName()) {
			continue
		}
		switch field.Kind() {
		case protoreflect.MessageKind:
			inner, _ := protowire.ConsumeBytes(value)
			altered, err := a.message(field.Message(), inner)
			if err != nil {
				return nil, err
			}
			value = protowire.AppendBytes(nil, altered)
		case protoreflect.EnumKind:
			if other, ok := a.Enums[field.Enum().FullName()]; ok {
				value = protowire.AppendVarint(nil, uint64(other))
			}
		}
		if moved, ok := a.Moved[field.FullName()]; ok {
			number = moved
		}
		out = append(protowire.AppendTag(out, number, kind), value...)
	}
	if a.Unknown {
		out = append(out, foreign(is)...)
	}
	return out, nil
}

// foreign are fields that a message does not have: one of each wire type under the lowest
// numbers that are free, one of them twice, and one under the highest number that there is.
func foreign(is protoreflect.MessageDescriptor) []byte {
	next := protowire.Number(0)
	free := func() protowire.Number {
		next++
		for is.Fields().ByNumber(next) != nil {
			next++
		}
		return next
	}
	var out []byte
	out = protowire.AppendVarint(protowire.AppendTag(out, free(), protowire.VarintType), 1<<63)
	out = protowire.AppendFixed32(protowire.AppendTag(out, free(), protowire.Fixed32Type), 1<<31)
	out = protowire.AppendFixed64(protowire.AppendTag(out, free(), protowire.Fixed64Type), 1<<63)
	text := free()
	for _, value := range []string{"", "\xff no text"} {
		out = protowire.AppendString(protowire.AppendTag(out, text, protowire.BytesType), value)
	}
	group := free()
	out = protowire.AppendTag(out, group, protowire.StartGroupType)
	out = protowire.AppendVarint(protowire.AppendTag(out, 1, protowire.VarintType), 7)
	out = protowire.AppendTag(out, group, protowire.EndGroupType)
	return protowire.AppendVarint(protowire.AppendTag(out, protowire.MaxValidNumber, protowire.VarintType), 7)
}
