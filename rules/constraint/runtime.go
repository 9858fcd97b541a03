package constraint

import (
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// runtimeCosts tracks, while the careful program runs, costs that cel-go's tracker ignores: the depth of compared
// values, and work linear in a text's length. It implements interpreter.ActualCostEstimator.
type runtimeCosts struct{ instructions map[string]uint64 }

// CallCost returns the cost of a finished call; nil selects cel-go's cost.
func (r runtimeCosts) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	var cost uint64
	switch function {
	case operators.Equals, operators.NotEquals:
		if len(args) != 2 {
			return nil
		}
		a := deepWeight(args[0], countedCostLimit)
		cost = 1 + min(a, deepWeight(args[1], a))
	case operators.In:
		if len(args) != 2 {
			return nil
		}
		n := sizeOf(args[1])
		if _, isMap := args[1].(traits.Mapper); isMap {
			n = 1
		}
		cost = add(1, mul(max(n, 1), deepWeight(args[0], countedCostLimit)))
	case "semver_compare":
		if len(args) != 2 {
			return nil
		}
		cost = semverCost(sizeOf(args[0]), sizeOf(args[1]))
	case overloads.Matches:
		if len(args) != 2 {
			return nil
		}
		pattern, _ := args[1].(types.String)
		cost = regexCost(sizeOf(args[0]), r.instructions[string(pattern)])
	case overloads.Size, overloads.TypeConvertString, overloads.TypeConvertBytes, overloads.TypeConvertInt,
		overloads.TypeConvertUint,
		overloads.TypeConvertDouble, overloads.TypeConvertTimestamp, overloads.TypeConvertDuration:
		if len(args) != 1 {
			return nil
		}
		cost = 5 + sizeOf(args[0])/5
	case overloads.TimeGetFullYear, overloads.TimeGetMonth, overloads.TimeGetDayOfYear, overloads.TimeGetDate,
		overloads.TimeGetDayOfMonth,
		overloads.TimeGetDayOfWeek, overloads.TimeGetHours, overloads.TimeGetMinutes, overloads.TimeGetSeconds,
		overloads.TimeGetMilliseconds:
		cost = 2
		if len(args) > 1 {
			cost = 500
		}
	default:
		return nil
	}
	return &cost
}

// sizeOf returns the length of a text, without counting its characters, or the number of elements.
func sizeOf(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v))
	case traits.Sizer:
		if n, ok := v.Size().(types.Int); ok && n > 0 {
			return uint64(n)
		}
	}
	return 1
}

// deepWeight returns the weight of a value as measure.value does, up to a limit.
func deepWeight(v ref.Val, limit uint64) uint64 {
	switch v := v.(type) {
	case types.String:
		return 1 + uint64(len(v))/10
	case traits.Mapper:
		weight := uint64(1)
		for it := v.Iterator(); it.HasNext() == types.True && weight < limit; {
			key := it.Next()
			weight = add(weight, deepWeight(key, limit))
			if value, found := v.Find(key); found {
				weight = add(weight, deepWeight(value, limit-min(limit, weight)))
			}
		}
		return weight
	case traits.Lister:
		weight := uint64(1)
		for it := v.Iterator(); it.HasNext() == types.True && weight < limit; {
			weight = add(weight, deepWeight(it.Next(), limit-min(limit, weight)))
		}
		return weight
	}
	return 1
}
