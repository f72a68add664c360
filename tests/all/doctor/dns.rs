//! A DNS server on loopback with a few TXT records.
//!
//! It answers over UDP in the format of RFC 1035. Like every public server, it knows the top-level
//! domain, unless a test starts it with [`serve_nothing`].

use std::collections::HashMap;
use std::net::SocketAddr;

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{SOA, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::net::UdpSocket;

/// The texts of each name.
pub type Zone = HashMap<String, Vec<String>>;

pub fn zone(texts: &[(&str, &str)]) -> Zone {
    let mut zone = Zone::new();
    for (name, text) in texts {
        zone.entry(format!("{name}.")).or_default().push((*text).to_owned());
    }
    zone
}

/// Starts a server for the zone and the top-level domain `example`.
pub async fn serve(zone: Zone) -> SocketAddr {
    listen(move |query| answer(&zone, query)).await
}

/// Starts a server that answers every query with NXDOMAIN.
pub async fn serve_nothing() -> SocketAddr {
    listen(|query| {
        let mut message = reply(query);
        message.metadata.response_code = ResponseCode::NXDomain;
        message
    })
    .await
}

async fn listen(answer: impl Fn(&Message) -> Message + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let addr = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut bytes = [0; 1_500];
        while let Ok((length, from)) = socket.recv_from(&mut bytes).await {
            let query = Message::from_vec(&bytes[..length]).unwrap();
            let encoded = answer(&query).to_vec().unwrap();
            socket.send_to(&encoded, from).await.unwrap();
        }
    });
    addr
}

fn reply(query: &Message) -> Message {
    let mut message = Message::response(query.metadata.id, OpCode::Query);
    message.add_queries(query.queries.clone());
    message
}

fn answer(zone: &Zone, query: &Message) -> Message {
    let mut message = reply(query);
    let question = &query.queries[0];
    let name = question.name().to_string().to_lowercase();
    let texts = zone.get(&name).map(Vec::as_slice).unwrap_or_default();
    match (question.query_type(), name.as_str()) {
        (RecordType::SOA, "example.") => {
            let server = Name::from_ascii("ns.example.").unwrap();
            let soa = SOA::new(server.clone(), server, 1, 60, 60, 60, 60);
            let record = Record::from_rdata(question.name().clone(), 60, RData::SOA(soa));
            message.add_answer(record);
        }
        (RecordType::TXT, _) if !texts.is_empty() => {
            for text in texts {
                // A TXT record holds strings of at most 255 bytes.
                let pieces = text.as_bytes().chunks(255);
                let text = TXT::from_bytes(pieces.collect());
                let record = Record::from_rdata(question.name().clone(), 60, RData::TXT(text));
                message.add_answer(record);
            }
        }
        _ => message.metadata.response_code = ResponseCode::NXDomain,
    }
    message
}
