//! The conformance suite on the link through shared memory, both ends in one process.

mod conformance;

use conformance::{suite, Came, Counts, Happened, Pair, Sent, Setup, Side};
use polyduct_message::link::shm::{Incoming, Link, Payload, Receiver, SendError, Sender, Sizes, Ticket};
use polyduct_message::{ChannelId, Head, Order, Priority, Token};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// A message that its channel has not sent whole.
struct Unsent {
    head: Head,
    payload: Vec<u8>,
    sent: Option<usize>,
    token: Token,
}

/// One end, with the queues that the suite expects of a side and the link leaves to those above it.
struct End {
    link: Link,
    receiver: Receiver<Vec<u8>>,
    senders: HashMap<(ChannelId, Priority), (Sender, VecDeque<Unsent>)>,
    /// Whose turn it is to send first, and who follows.
    turns: VecDeque<(ChannelId, Priority)>,
    /// Sent, and not known to be taken, high and low.
    under_way: [VecDeque<(Ticket, ChannelId, Token)>; 2],
    tokens: u64,
    happened: VecDeque<Happened>,
    /// Messages that were received and not returned, high and low.
    waiting: [usize; 2],
    /// Buffers that may be given out.
    buffers: Option<usize>,
    /// It, or the other side, is dead.
    over: bool,
}

struct Memory {
    ends: [End; 2],
    queue: usize,
}

fn rank(priority: Priority) -> usize {
    usize::from(priority == Priority::Low)
}

impl End {
    fn new(link: Link, setup: Setup) -> End {
        let receiver = link.receiver().unwrap();
        End {
            link,
            receiver,
            senders: HashMap::new(),
            turns: VecDeque::new(),
            under_way: Default::default(),
            tokens: 0,
            happened: VecDeque::new(),
            waiting: [0; 2],
            buffers: setup.buffers,
            over: false,
        }
    }

    /// Messages of a priority that count against the queue.
    fn queued(&self, priority: Priority) -> usize {
        let unsent = self.senders.iter().filter(|((_, p), _)| *p == priority).map(|(_, (_, q))| q.len());
        unsent.sum::<usize>() + self.under_way[rank(priority)].len()
    }

    /// Sends what there is room for, the channels in turns. Returns whether anything went.
    fn push(&mut self) -> bool {
        let mut any = false;
        // The first channel takes what room there is, and is last the next time.
        self.turns.rotate_left(usize::from(!self.turns.is_empty()));
        for key @ (channel, priority) in &self.turns {
            // One step, then the next channel.
            let Some((sender, queue)) = self.senders.get_mut(key) else { continue };
            let Some(first) = queue.front_mut() else { continue };
            let step = match first.sent {
                None => sender.send(first.head, &first.payload),
                Some(at) => sender.extend(&first.payload[at..]),
            };
            match step {
                Ok(n) => first.sent = Some(first.sent.unwrap_or(0) + n),
                Err(SendError::Full) => continue,
                Err(e) => panic!("{e}"),
            }
            any = true;
            if first.sent == Some(first.payload.len()) {
                self.under_way[rank(*priority)].push_back((sender.ticket(), *channel, first.token));
                queue.pop_front();
            }
        }
        for priority in [Priority::High, Priority::Low] {
            let under_way = &mut self.under_way[rank(priority)];
            while let Some(&(ticket, channel, token)) = under_way.front() {
                if !self.senders[&(channel, priority)].0.is_taken(ticket) {
                    break;
                }
                under_way.pop_front();
                self.happened.push_back(Happened::Delivered(token));
                any = true;
            }
        }
        any
    }

    /// Receives one look's worth. Returns whether anything came.
    fn pull(&mut self) -> bool {
        let buffers = std::cell::Cell::new(self.buffers);
        let End { receiver, happened, waiting, .. } = self;
        let take = || match buffers.get() {
            Some(0) => false,
            n => {
                buffers.set(n.map(|n| n - 1));
                true
            }
        };
        let give = &mut |m: &Incoming| take().then(|| vec![0; m.len as usize]);
        let records = receiver.poll(give, &mut |m, payload| {
            let payload = match payload {
                // The suite counts a buffer for each payload.
                Payload::Bytes(bytes) if !bytes.is_empty() && !take() => return false,
                Payload::Bytes(bytes) => bytes.to_vec(),
                Payload::Buffer(buffer) => buffer,
            };
            waiting[rank(m.priority)] += 1;
            let came = Came { channel: m.channel, priority: m.priority, head: m.head, payload };
            happened.push_back(Happened::Message(came));
            true
        });
        self.buffers = buffers.get();
        records.unwrap() > 0
    }
}

impl Memory {
    fn new(setup: Setup, sizes: &Sizes) -> Memory {
        let a = Link::create(sizes).unwrap();
        let b = Link::attach(a.fd().try_clone_to_owned().unwrap(), 1 << 30, sizes).unwrap();
        Memory { ends: [End::new(a, setup), End::new(b, setup)], queue: setup.queue }
    }

    /// Lets one side work. Returns whether it did anything.
    fn drive(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        !end.over && (end.push() | end.pull())
    }
}

impl Pair for Memory {
    fn send(
        &mut self,
        from: Side,
        channel: ChannelId,
        priority: Priority,
        _: Order,
        head: Head,
        payload: Vec<u8>,
    ) -> Sent {
        let end = &mut self.ends[from as usize];
        if end.over {
            return Sent::Lost;
        }
        if end.queued(priority) >= self.queue {
            return Sent::Full;
        }
        end.tokens += 1;
        let token = Token(end.tokens);
        let (link, turns) = (&end.link, &mut end.turns);
        let (_, queue) = end.senders.entry((channel, priority)).or_insert_with(|| {
            turns.push_back((channel, priority));
            (link.sender(channel, priority).unwrap(), VecDeque::new())
        });
        queue.push_back(Unsent { head, payload, sent: None, token });
        Sent::Taken(token)
    }

    /// Both sides are this thread's, so when neither finds anything to do, nothing will happen.
    fn next(&mut self, at: Side, _: Duration) -> Option<Happened> {
        loop {
            if let Some(happened) = self.ends[at as usize].happened.pop_front() {
                if let Happened::Message(came) = &happened {
                    self.ends[at as usize].waiting[rank(came.priority)] -= 1;
                }
                return Some(happened);
            }
            // The other side first: when it finds nothing it still shows what it has taken.
            if !(self.drive(at.other() as usize) | self.drive(at as usize)) {
                return None;
            }
        }
    }

    fn settle(&mut self, _: Duration) {
        for end in self.ends.iter_mut().filter(|end| !end.over) {
            while end.push() {}
        }
    }

    fn release(&mut self, at: Side) {
        let end = &mut self.ends[at as usize];
        end.buffers = end.buffers.map(|n| n + 1);
    }

    fn status(&mut self, at: Side, priority: Priority) -> Counts {
        let end = &self.ends[at as usize];
        let waiting = end.waiting[rank(priority)] + end.receiver.waiting()[rank(priority)] as usize;
        Counts { waiting, sends: self.queue - end.queued(priority) }
    }

    fn kill(&mut self, side: Side) {
        for end in &mut self.ends {
            end.over = true;
            end.link.close();
        }
        self.ends[side.other() as usize].happened.push_back(Happened::Lost);
    }
}

#[test]
fn rings_of_the_usual_size() {
    suite(&|setup| Box::new(Memory::new(setup, &Sizes::default())));
}

#[test]
fn rings_shorter_than_most_messages() {
    let sizes = Sizes { low_lines: 64, low_bytes: 16 << 10, ..Sizes::default() };
    suite(&move |setup| Box::new(Memory::new(setup, &sizes)));
}
