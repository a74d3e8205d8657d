//! What a person says, brought to the threads in the order in which it was said.

use rye_engine::store::StoreError;
use rye_engine::{Prompt, Session};
use tokio::sync::mpsc;

use crate::work::{Told, wrong};

/// What a person says to a thread.
pub(crate) enum Said {
    Prompt(Box<Prompt>),
    /// It is to end what it does.
    End(String),
}

/// Says what is to be said, one after the other: what is said after an end is not ended.
pub(crate) async fn say_all(
    session: Session,
    mut queue: mpsc::UnboundedReceiver<Said>,
    told: mpsc::UnboundedSender<Told>,
) {
    while let Some(said) = queue.recv().await {
        let news = match said {
            Said::Prompt(prompt) => Some(send(&session, *prompt).await),
            Said::End(thread) => end(&session, &thread)
                .await
                .unwrap_or_else(|error| Some(wrong(&error))),
        };
        if let Some(news) = news {
            let _ = told.send(news);
        }
    }
}

async fn send(session: &Session, prompt: Prompt) -> Told {
    let text = prompt.content.clone();
    let thread = prompt.thread.clone().unwrap_or_default();
    match session.prompt(prompt).await {
        Ok(item) => Told::Sent(thread, item),
        Err(error) => Told::NotSent {
            thread,
            text,
            why: error.to_string(),
        },
    }
}

/// Ends what a thread does. What waits would be forgotten with it: it is given back.
async fn end(session: &Session, key: &str) -> Result<Option<Told>, StoreError> {
    let mut back = Vec::new();
    let threads = session.threads();
    if let Some(thread) = threads.iter().find(|view| view.key == key) {
        for item in session.waiting(&thread.id).await? {
            let item = session.withdraw(&thread.id, &item.id).await?;
            back.extend(item.map(|item| item.content));
        }
    }
    session.abort(Some(key)).await?;
    Ok((!back.is_empty()).then(|| Told::Back(back.join("\n\n"))))
}
