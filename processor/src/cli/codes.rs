//! What the codes of findings mean, at more length than a finding has.

use oncely_connectors::file::Code;

/// The code that a person typed, in either case.
pub(super) fn code(text: &str) -> Option<Code> {
    Code::ALL.iter().copied().find(|code| code.as_str().eq_ignore_ascii_case(text))
}

/// What it means, why it matters, what to do.
#[allow(clippy::too_many_lines, reason = "one text for each code")]
pub(super) const fn explanation(code: Code) -> &'static str {
    match code {
        Code::Unreadable => {
            "The file, or a template or sample that it names, is not there, is larger than 1 MiB, \
             or is no UTF-8 text."
        }
        Code::Yaml => {
            "The file is no YAML. The place is where the parser gave up; the mistake is \
                       often a line above it: a missing colon, a tab, a quote that is never closed."
        }
        Code::YamlFeature => {
            "Anchors, aliases, tags, merge keys and several documents in one file are not used by \
             connector files, so that a file reads as it is written. Write the value out."
        }
        Code::WrongType => {
            "The value has another type than the field takes: a list where one text \
                            is meant, a text where a number is meant."
        }
        Code::MissingField => "A field without which the connector means nothing is not there.",
        Code::UnknownField => {
            "There is no such field here. It is refused instead of ignored, since \
                               a mistyped limit or rule would silently not hold."
        }
        Code::DuplicateField => {
            "The field stands twice. Which of the two was meant is not for us \
                                 to say: remove one."
        }
        Code::UnknownChoice => {
            "The field takes one word of a short list, and this is none of them."
        }
        Code::Malformed => {
            "Durations are written as 15s, 5m, 24h, 90d; sizes as 256KiB; rates as \
                            10/s."
        }
        Code::OutOfRange => "The value can be read, but lies outside what is allowed here.",
        Code::BadName => {
            "Names of connectors and effects are lower-case letters, digits, and \
                          dashes or underscores: they become labels of metrics and parts of keys."
        }
        Code::FieldOfOtherType => {
            "The field belongs to effects of another type, and would have no \
                                   consequence here."
        }
        Code::Expression => {
            "The expression cannot be read, or asks for something that does not \
                             exist. Plain paths (event.data.id) and CEL are understood; integers \
                             stay integers."
        }
        Code::Template => {
            "The template cannot be read. Values stand in {{ … }}; a name that is \
                           not there when it is rendered is an error, never an empty text."
        }
        Code::OutOfScope => {
            "The name exists, but not at the time when this is read: `state` is \
                             known only after the transition, `response` only after a call."
        }
        Code::NoIdentity => {
            "An id or key that has partition, offset or timestamp in it, or nothing but the record's own \
             topic and key, or nothing that changes, is not the name of a business event: the same event, \
             published again, would get another id and run again. Name it by what it is about: event.data.invoice_id."
        }
        Code::Reference => {
            "References are ${env:NAME}, ${env:NAME:-default} and ${secret:name}. \
                            $${ stands for a plain ${. In fields that end up in the database or in \
                            logs no secret may stand."
        }
        Code::Unresolved => {
            "The reference has no value where the processor runs: set the variable, \
                             or put a file of that name into ONCELY_SECRETS_DIR."
        }
        Code::LiteralSecret => {
            "A secret is written into the file. Whoever reads the file or its \
                                history has it: put it into ${secret:name}, and change it."
        }
        Code::UnknownState => "The state is in no transition and is not the initial one.",
        Code::UnreachableState => {
            "No chain of transitions leads from the initial state to this \
                                   one, so whatever waits for it never happens."
        }
        Code::AmbiguousTransition => {
            "Transitions are tried in the order of the file, and the first whose `if` holds is taken. One \
             that stands behind another from the same state without `if`, or with the same `if`, is never \
             taken. Conditions that differ and hold together are not found: order them by hand."
        }
        Code::DuplicateName => {
            "Two things of one kind have one name. Keys are made of names: the \
                                two would share their memory."
        }
        Code::UnknownEffect => {
            "No effect of the file has this id. `after`, and the `tests:`, name effects by their `id`."
        }
        Code::Cycle => "The effects come after each other in a circle, so none could begin.",
        Code::ResultNotThere => {
            "A request reads the result of an effect that it does not come \
                                 `after`, or that records no such member."
        }
        Code::UnknownProfile => {
            "A profile says what a provider does with our requests: which header carries the key, \
             how long it is remembered, what its answers mean. Some come with the program, others \
             are declared under `profiles:`; this name is neither."
        }
        Code::NoKey => {
            "Sending again with the same key is safe only where the provider knows the \
                        key. This one does not: use `on_unknown: hold`, or a profile with a key."
        }
        Code::RetryOutlivesWindow => {
            "The provider forgets a key after its window. A retry after that is a second effect: a \
             second charge, a second mail. Shorten the retries, or hold instead."
        }
        Code::RetryPlan => {
            "The retries contradict themselves: the longest wait is shorter than \
                            the first, or they name answers after which nothing may be repeated."
        }
        Code::Timeout => "The time-outs contradict each other: connecting is part of the whole.",
        Code::Limit => "The limit is zero, or larger than one process can hold.",
        Code::RetentionTooShort => {
            "What is forgotten can run again. The retention of dedupe keys must be longer than \
             anything that brings an event back: retries, offset_wait, a replay of the topic."
        }
        Code::Request => {
            "The request cannot be made: a method, a header or an address is not \
                          allowed, or one of the parts that it needs is missing."
        }
        Code::NoLookup => {
            "`on_unknown: reconcile` asks the provider whether an effect took place. How it is asked \
             stands in `lookup:`, in the effect or in its profile. A provider that cannot be asked \
             takes `hold`, or `retry_same_key` where it knows our key."
        }
        Code::LookupBlind => {
            "A look-up that finds nothing is believed after a while, and the effect is sent again. So it \
             must ask by something that the request has told the provider: the effect key in its url, \
             headers or body, or a number of the event's own."
        }
        Code::SettleDelay => {
            "A request may still be under way when its answer is given up, and its effect may take a \
             while to appear. Before the time-out and `applies_within` have passed, \"not found\" says \
             nothing: whoever believed it would send a second time."
        }
        Code::GroupTaken => {
            "Two connectors in one consumer group take records from each other: \
                             each would see a part. Give each a group of its own."
        }
        Code::ConnectorTaken => "Two files have one connector name, and so one memory.",
        Code::OutlivesGrace => {
            "A process that is told to stop waits for its calls in flight for ONCELY_SHUTDOWN_GRACE, and \
             then ends. A call that may take longer is cut off at every deployment, and its outcome is \
             unknown: it is repeated, asked for or held, as its rule says."
        }
        Code::Compensation => {
            "`compensate` names an effect of an earlier event of the same entity, and this one undoes it once \
             it is known to be done. That needs a `state` block, whose versions say what came first, an \
             effect that cannot come later than what undoes it, and a `when` that no event fulfils for both."
        }
        Code::PublishLoop => {
            "What an effect publishes comes back to its own connector, at once or by way of others that are \
             checked with it, so one record makes records for ever. It is refused where nothing on the way \
             could end it: no connector has a `match` or a `state` block, and no effect a `when` that is not \
             always true. Topics that a template names are not looked at."
        }
        Code::WaitsApart => {
            "Two connectors of one scope move the same entities, and events of one may have to wait for those of \
             the other: a missing version may be in a topic that only the other one reads, and the time that it is \
             waited for says nothing of that one's lag. Let one connector read the topics of both, or have events \
             apply at once."
        }
        Code::Renamed => {
            "Found with the database alone (`validate --live`, `run`): the connector's name is new there, the file says no \
             `scope`, and another connector, of none of the files given, has read one of its topics with effects of the \
             same ids, or in its consumer group. Ids and keys are made of the scope, which is the name unless stated: \
             under a new one nothing is known, and whatever the topic still has runs again. Keep the old one with \
             `scope: <old name>`. A connector of its own says so by `scope: <its name>`."
        }
        Code::NotYet => {
            "It is part of the language, but this version does nothing with it, and refuses it: a \
             rule that silently does not hold is worse. The finding says what to use instead. \
             What is planned stands in CHANGELOG.md under `Not there yet`, without a date."
        }
        Code::UnresolvedHere => {
            "The reference has no value on this machine. Where the processor \
                                 runs it must have one; `validate --live` checks it there."
        }
        Code::StaleRuns => {
            "The effect runs for stale events as well: events that are older than \
                            the state. That is right for usage lines and seldom for messages."
        }
        Code::NotInSamples => {
            "A request reads a member that no sample event has. It is mistyped, \
                               or the samples lack a case."
        }
        Code::Unused => "The field is allowed and has no consequence beside the others.",
        Code::FailsOnSamples => {
            "The expression has no usable value for any of the sample events that the connector \
             wants: every such record would be set aside. It is mistyped, or the samples are of \
             another kind."
        }
        Code::WindowNotKnown => {
            "`window: none` says that the receiver promises nothing about how long it remembers a \
             key. That is accepted; but `on_unknown: retry_same_key` then repeats a request for as \
             long as `retry` allows, and a receiver that has forgotten the key acts again. With \
             `hold` nothing is repeated after an unknown outcome, and the window does not matter."
        }
        Code::BareExpression => {
            "Fields like `to`, `url`, `json` and `form` are templates: text goes out as it stands, and \
             only what stands in `{{ }}` is replaced. A text such as event.email would be sent as it \
             is written: write \"{{ event.email }}\"."
        }
        Code::GapNeverFilled => {
            "With `on_gap: { wait: … }` an event waits for every version below its own. Versions of records \
             that `match` leaves out never come, so what follows them waits its whole time, each time. \
             Read those records as well (and `on_invalid: ignore` them), or let later versions apply."
        }
        Code::IdentityChanged => {
            "Found with the database alone (`validate --live`, `run`): `identity.tenant`, `identity.id` or the scope reads \
             otherwise than in the file that ran last. Events get other keys by it, and so do their effects: a record that \
             is read again, since its offset was not committed or after a rewind, is a new event, and what it owes happens \
             once more. Deploy it when all that was read is decided and done, and rewind to no time before it."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_and_explained() {
        for known in Code::ALL {
            assert_eq!(code(&known.as_str().to_lowercase()), Some(*known));
            assert!(explanation(*known).len() > 40, "{}", known.as_str());
        }
        assert_eq!(code("E999"), None);
    }
}
